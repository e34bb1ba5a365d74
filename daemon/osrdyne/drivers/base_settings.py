"""The contract of a driver's settings, apart from `base`: a driver itself needs no pydantic."""

from __future__ import annotations

import abc
from collections.abc import Iterable
from pathlib import Path

from osrdyne.drivers.base import Driver
from osrdyne.settings.model import StrictModel
from osrdyne_protocol.settings import PoolSettings


class DriverSettings(StrictModel, abc.ABC):
    """The table [driver] of the daemon's settings, for one engine; its `kind` is a `Literal` with the driver's name.

    What a worker is started from is the template that infrastructure code declares. What stands here is where that
    template is, which engine is meant, and how workers get the broker's address. Import the engine's library in `open`:
    such libraries are large, and only the driver that is chosen needs its own.
    """

    #: The driver's name.
    kind: str

    @abc.abstractmethod
    def open(self, pool: PoolSettings) -> Driver:
        """Return the driver. Raises `DriverError` or `SettingsError` for settings that cannot be right."""

    def files(self) -> Iterable[Path]:
        """Return the files that the driver reads when it is made; when one changes, the daemon makes a new driver."""
        return ()
