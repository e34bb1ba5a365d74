"""The settings of the driver `relay`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr

from osrdyne.base.credentials import address
from osrdyne.drivers.base import Driver
from osrdyne.drivers.base_settings import DriverSettings
from osrdyne_pool.settings import PoolSettings
from osrdyne_relay.settings import RelaySettings


class RelayDriverSettings(DriverSettings):
    """Driver `relay`: requests go to workers that poll at nodes of the relay."""

    kind: Literal["relay"]
    #: AMQP address of a worker of the pool, or the file that holds it: with it the daemon takes requests and answers.
    worker_amqp_uri: SecretStr | None = None
    worker_amqp_uri_file: Path | None = None
    #: The relay's Redis, as its nodes have it.
    relay: RelaySettings
    #: Most requests of one key that are on the relay at a time; the others wait in the request queue.
    at_once: int = Field(default=16, ge=1, le=1000)

    def files(self) -> Iterable[Path]:
        return self.relay.redis.files()

    def open(self, pool: PoolSettings) -> Driver:
        from osrdyne_relay.driver.driver import RelayDriver

        uri = address(self.worker_amqp_uri, self.worker_amqp_uri_file, "driver.worker_amqp_uri")
        return RelayDriver(pool, self.relay, uri, at_once=self.at_once, worker_amqp_uri_file=self.worker_amqp_uri_file)
