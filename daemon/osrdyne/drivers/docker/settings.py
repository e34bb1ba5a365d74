"""The settings of the driver `docker`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from osrdyne.base.credentials import secret
from osrdyne.drivers.base import Driver
from osrdyne.drivers.base_settings import DriverSettings
from osrdyne_pool.settings import PoolSettings


class DockerSettings(DriverSettings):
    """Driver `docker`: one container a group, on one Docker engine."""

    kind: Literal["docker"]
    #: JSON or TOML file with the body of the engine's container create; see `template`.
    template_file: Path
    #: Address of the engine; None for that of the environment (DOCKER_HOST and the variables beside it).
    host: str | None = None
    #: File with the AMQP address that workers get. Their containers see the directory that it is in.
    worker_amqp_uri_file: Path

    def open(self, pool: PoolSettings) -> Driver:
        from osrdyne.drivers.docker.driver import DockerDriver

        # Only workers use it: read it here, so that a missing file is a mistake in the settings and not in each start.
        secret(None, self.worker_amqp_uri_file, "driver.worker_amqp_uri")
        return DockerDriver(pool, self.template_file, self.worker_amqp_uri_file, host=self.host)

    def files(self) -> Iterable[Path]:
        return (self.template_file,)
