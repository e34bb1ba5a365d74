"""The settings of the driver `systemd`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr

from osrdyne.base.credentials import address
from osrdyne.drivers import private_place
from osrdyne.drivers.base import Driver
from osrdyne.drivers.base_settings import DriverSettings
from osrdyne_pool.settings import PoolSettings


class SystemdSettings(DriverSettings):
    """Driver `systemd`: one instance of a template unit a group, of the system's or a user's manager."""

    kind: Literal["systemd"]
    #: Name of the template unit, such as `osrdyne-core@.service`.
    unit: Annotated[str, Field(pattern=r"^[A-Za-z0-9:_.-]{1,150}@\.service$")]
    #: Directory of the environment files that the unit reads, of the daemon alone.
    environment_directory: Path = Path("/run/osrdyne")
    #: Whose units they are: the machine's, or those of the daemon's own user.
    manager: Literal["system", "user"] = "system"
    #: D-Bus address of the bus that the manager is on; None for the usual one.
    bus_address: str | None = None
    #: AMQP address that workers get, or the file that holds it.
    worker_amqp_uri: SecretStr | None = None
    worker_amqp_uri_file: Path | None = None

    def check(self, pool: PoolSettings) -> None:
        address(self.worker_amqp_uri, self.worker_amqp_uri_file, "driver.worker_amqp_uri")
        private_place.check(self.environment_directory, 0o077)
        from osrdyne.drivers.systemd import bus  # noqa: F401 - its library may be missing

    def open(self, pool: PoolSettings) -> Driver:
        from osrdyne.drivers.systemd.driver import SystemdDriver, UnitPlace

        return SystemdDriver(
            pool,
            UnitPlace(self.unit, self.environment_directory, self.manager, self.bus_address),
            address(self.worker_amqp_uri, self.worker_amqp_uri_file, "driver.worker_amqp_uri"),
            worker_amqp_uri_file=self.worker_amqp_uri_file,
        )
