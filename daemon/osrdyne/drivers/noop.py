"""The driver for workers that the daemon does not run: it starts and stops nothing, and lists nothing.

The daemon still creates queues and forwards requests; a queue that has consumers stays, because the daemon could
not bring its workers back.
"""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import AsyncIterator
from typing import Literal

from osrdyne.drivers.base import Change, Driver, Group
from osrdyne.drivers.base_settings import DriverSettings
from osrdyne_pool.settings import PoolSettings


class NoopSettings(DriverSettings):
    """Driver `noop`: workers are started and stopped outside of osrdyne."""

    kind: Literal["noop"]

    def open(self, pool: PoolSettings) -> Driver:
        return NoopDriver()


class NoopDriver:
    """Accepts every call and does nothing."""

    owns_workers = False
    #: No template: no group of this driver is ever out of date.
    template = ""

    def __init__(self) -> None:
        self._closed = asyncio.Event()

    async def start(self, key: str) -> None:
        """Do nothing; a worker has to be started from outside."""

    async def stop(self, key: str) -> None:
        """Do nothing; workers have to be stopped from outside."""

    async def list(self) -> builtins.list[Group]:
        """Return nothing: this driver has no worker groups."""
        return []

    async def changes(self) -> AsyncIterator[Change]:
        """Yield nothing, and end when the driver is closed."""
        await self._closed.wait()
        nothing: tuple[Change, ...] = ()
        for change in nothing:
            yield change

    async def close(self) -> None:
        """End `changes`."""
        self._closed.set()
