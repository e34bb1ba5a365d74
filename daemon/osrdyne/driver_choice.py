"""Makes the driver that the settings name: the one place that knows all drivers."""

from __future__ import annotations

from osrdyne.drivers import Driver
from osrdyne.drivers.noop import NoopDriver
from osrdyne.drivers.subprocess import SubprocessDriver
from osrdyne.settings import DaemonSettings, NoopSettings, address


def open_driver(settings: DaemonSettings) -> Driver:
    """Return the driver. Raises `DriverError` or `SettingsError` for settings that cannot be right."""
    chosen = settings.driver
    if isinstance(chosen, NoopSettings):
        return NoopDriver()

    return SubprocessDriver(
        settings.pool,
        chosen.template,
        address(chosen.worker_amqp_uri, chosen.worker_amqp_uri_file, "driver.worker_amqp_uri"),
        chosen.state_directory,
        worker_amqp_uri_file=chosen.worker_amqp_uri_file,
    )
