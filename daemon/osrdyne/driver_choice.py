"""Makes the driver that the settings name: the one place that knows all drivers.

A driver is imported only when it is chosen, because some of their engines' libraries are large.
"""

from __future__ import annotations

from osrdyne.driver_settings import NoopSettings, SubprocessSettings
from osrdyne.drivers import Driver
from osrdyne.settings import DaemonSettings, address
from osrdyne_protocol.errors import SettingsError
from osrdyne_protocol.settings import PoolSettings


def open_driver(settings: DaemonSettings) -> Driver:
    """Return the driver. Raises `DriverError` or `SettingsError` for settings that cannot be right."""
    chosen = settings.driver
    if isinstance(chosen, NoopSettings):
        from osrdyne.drivers.noop import NoopDriver

        return NoopDriver()
    if isinstance(chosen, SubprocessSettings):
        return _subprocess(settings.pool, chosen)
    raise SettingsError("driver.kind", f"{chosen.kind!r} is not there yet; choose subprocess or noop")


def _subprocess(pool: PoolSettings, chosen: SubprocessSettings) -> Driver:
    from osrdyne.drivers.subprocess import SubprocessDriver

    return SubprocessDriver(
        pool,
        chosen.template,
        address(chosen.worker_amqp_uri, chosen.worker_amqp_uri_file, "driver.worker_amqp_uri"),
        chosen.state_directory,
        worker_amqp_uri_file=chosen.worker_amqp_uri_file,
    )
