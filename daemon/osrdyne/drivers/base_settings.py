"""The contract of a driver's settings, apart from `base`: a driver itself needs no pydantic."""

from __future__ import annotations

import abc
import asyncio
from collections.abc import Iterable
from pathlib import Path

from osrdyne.drivers.base import Driver
from osrdyne_pool.settings import PoolSettings
from osrdyne_runtime.settings.model import StrictModel


class DriverSettings(StrictModel, abc.ABC):
    """The table [driver] of the daemon's settings, for one engine; its `kind` is a `Literal` with the driver's name.

    Infrastructure code declares the template of the workers. These settings say where that template is, which engine to
    use, and how workers get the broker's address. Import the engine's library in `open`: such libraries are large, and
    only the chosen driver needs its own.
    """

    #: The driver's name.
    kind: str

    @abc.abstractmethod
    def open(self, pool: PoolSettings) -> Driver:
        """Return the driver. Raises `DriverError` or `SettingsError` for invalid settings."""

    def check(self, pool: PoolSettings) -> None:
        """Raise what `open` raises for these settings, and make nothing.

        A driver whose `open` makes directories has a check of its own: another user than the daemon's may ask.
        """

        async def opened_and_closed() -> None:
            await self.open(pool).close()

        asyncio.run(opened_and_closed())

    def files(self) -> Iterable[Path]:
        """Return the files that `open` reads; when one changes, the daemon opens a new driver."""
        return ()
