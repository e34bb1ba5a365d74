"""The contract of a driver, and the state of a worker group on an engine. Standard library only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class GroupState(Enum):
    """The state of a group on its engine."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class Group:
    """One worker group of our pool and instance, as the engine shows it."""

    key: str
    state: GroupState
    #: Workers that the engine runs for it now.
    workers: int
    #: Hash of the template that it was started from, so that only a changed template rolls it.
    template: str


@dataclass(frozen=True, slots=True)
class Change:
    """A group changed without a call of the driver: the group loop lists again. `error` is for a person."""

    key: str
    error: str | None = None


class Driver(Protocol):
    """The contract. Every method is idempotent and raises `osrdyne.errors.DriverError` with a reason."""

    #: False when the driver does not start and stop the workers (noop).
    owns_workers: bool
    #: Hash of the template that a group started now would have.
    template: str

    async def start(self, key: str) -> None:
        """Start the group of `key`; returns once the engine has accepted it."""

    async def stop(self, key: str) -> None:
        """Ask for a graceful stop; returns once accepted. The group leaves the listing when it is gone."""

    async def list(self) -> list[Group]:
        """Return every group of our pool and instance, those of a former daemon included."""

    def changes(self) -> AsyncIterator[Change]:
        """Yield changes that the driver did not cause, such as a worker's exit, as long as the driver is open."""

    async def close(self) -> None:
        """Release the driver's resources. Stops no worker."""
