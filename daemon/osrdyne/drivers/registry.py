"""Makes the driver that the settings name: the one place that knows all drivers.

A driver is imported only when it is chosen, because some of their engines' libraries are large.
"""

from __future__ import annotations

from osrdyne.drivers.base import Driver
from osrdyne.settings.daemon import DaemonSettings, address
from osrdyne.settings.drivers import (
    DockerSettings,
    KubernetesSettings,
    NoopSettings,
    SubprocessSettings,
    SystemdSettings,
)
from osrdyne_protocol.settings import PoolSettings


def open_driver(settings: DaemonSettings) -> Driver:
    """Return the driver. Raises `DriverError` or `SettingsError` for settings that cannot be right."""
    chosen = settings.driver
    if isinstance(chosen, NoopSettings):
        from osrdyne.drivers.noop import NoopDriver

        return NoopDriver()
    if isinstance(chosen, SubprocessSettings):
        return _subprocess(settings.pool, chosen)
    if isinstance(chosen, DockerSettings):
        return _docker(settings.pool, chosen)
    if isinstance(chosen, SystemdSettings):
        return _systemd(settings.pool, chosen)
    return _kubernetes(settings.pool, chosen)


def _subprocess(pool: PoolSettings, chosen: SubprocessSettings) -> Driver:
    from osrdyne.drivers.subprocess.driver import SubprocessDriver

    return SubprocessDriver(
        pool,
        chosen.template,
        address(chosen.worker_amqp_uri, chosen.worker_amqp_uri_file, "driver.worker_amqp_uri"),
        chosen.state_directory,
        worker_amqp_uri_file=chosen.worker_amqp_uri_file,
    )


def _systemd(pool: PoolSettings, chosen: SystemdSettings) -> Driver:
    from osrdyne.drivers.systemd.driver import Place, SystemdDriver

    return SystemdDriver(
        pool,
        Place(chosen.unit, chosen.environment_directory, chosen.manager, chosen.bus_address),
        address(chosen.worker_amqp_uri, chosen.worker_amqp_uri_file, "driver.worker_amqp_uri"),
        worker_amqp_uri_file=chosen.worker_amqp_uri_file,
    )


def _kubernetes(pool: PoolSettings, chosen: KubernetesSettings) -> Driver:
    from osrdyne.drivers.kubernetes import template
    from osrdyne.drivers.kubernetes.api import Api
    from osrdyne.drivers.kubernetes.driver import KubernetesDriver
    from osrdyne.drivers.kubernetes.manifests import Manifests

    templates = template.load(chosen.template_directory, autoscaling=chosen.autoscaling, container=chosen.container)
    manifests = Manifests(pool, templates, chosen.worker_secret, chosen.worker_secret_key)
    api = Api(kubeconfig=chosen.kubeconfig, namespace=chosen.namespace, timeout=chosen.timeout)
    return KubernetesDriver(manifests, api, timeout=chosen.timeout)


def _docker(pool: PoolSettings, chosen: DockerSettings) -> Driver:
    from osrdyne.drivers.docker.driver import DockerDriver

    address(None, chosen.worker_amqp_uri_file, "driver.worker_amqp_uri")
    return DockerDriver(pool, chosen.template_file, chosen.worker_amqp_uri_file, host=chosen.host)
