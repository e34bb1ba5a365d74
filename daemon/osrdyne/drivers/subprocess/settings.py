"""The settings of the driver `subprocess`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import SecretStr

from osrdyne.base.credentials import address
from osrdyne.drivers import private_place
from osrdyne.drivers.base import Driver
from osrdyne.drivers.base_settings import DriverSettings
from osrdyne.drivers.subprocess.template import SubprocessTemplate
from osrdyne_pool.settings import PoolSettings
from osrdyne_protocol import names


class SubprocessSettings(DriverSettings):
    """Driver `subprocess`: one process a group, on this machine."""

    kind: Literal["subprocess"]
    #: AMQP address that workers get, or the file that holds it.
    worker_amqp_uri: SecretStr | None = None
    worker_amqp_uri_file: Path | None = None
    #: Where the driver keeps what it started, and the workers' output.
    state_directory: Path = Path("/var/lib/osrdyne")
    #: How a worker is started; see `SubprocessTemplate`.
    template: SubprocessTemplate

    def check(self, pool: PoolSettings) -> None:
        address(self.worker_amqp_uri, self.worker_amqp_uri_file, "driver.worker_amqp_uri")
        home = names.engine_name(pool.name, pool.instance, "")
        private_place.check(self.state_directory, 0o022)
        for place in (self.state_directory, self.template.log_directory):
            if place is not None:
                private_place.check(place / home, 0o022)

    def open(self, pool: PoolSettings) -> Driver:
        from osrdyne.drivers.subprocess.driver import SubprocessDriver

        return SubprocessDriver(
            pool,
            self.template,
            address(self.worker_amqp_uri, self.worker_amqp_uri_file, "driver.worker_amqp_uri"),
            self.state_directory,
            worker_amqp_uri_file=self.worker_amqp_uri_file,
        )
