"""The contract of a driver, and the state of a worker group on an engine. Standard library only."""

from __future__ import annotations

import signal
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


class How(Enum):
    """How a worker ended."""

    EXIT = "exit"
    SIGNAL = "signal"
    #: It was killed because it used more memory than it may.
    MEMORY = "memory"
    #: It could not be started, so that there was no worker.
    NO_START = "no-start"
    #: Its stop was requested.
    STOPPED = "stopped"
    UNKNOWN = "unknown"


def signal_name(number: int) -> str:
    """Return `SIGKILL` for 9, and `signal 50` for a number without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass(frozen=True, slots=True)
class WorkerEnd:
    """How one worker ended, or could not be started. What the engine does not say keeps its default."""

    how: How
    #: Exit status, or number of the signal.
    code: int | None = None
    worker_id: str | None = None
    #: For how long it ran.
    seconds: float | None = None
    #: The last lines that it wrote, as `redaction.last_lines` returns them. Of a worker that was to stop, only a driver
    #: that has them at hand says them.
    output: tuple[str, ...] = ()
    #: Where a person finds all that it wrote: a file, or a command.
    log: str = ""

    @property
    def short(self) -> str:
        """Return it in a word or two: `exit 1`, `signal 9`, `memory`."""
        return self.how.value if self.code is None else f"{self.how.value} {self.code}"

    @property
    def trace(self) -> str:
        """Return where its output is, and the last line of it, to be put behind a sentence; empty where unknown."""
        where, last = f"see {self.log}" if self.log else "", self.output[-1] if self.output else ""
        said = ": ".join(part for part in (where, last) if part)
        return f"; {said}" if said else ""


@dataclass(frozen=True, slots=True)
class Change:
    """A group changed without a call of the driver: the group loop lists again. `error` is for a person.

    Where a worker ended, requested or not, or could not be started, `end` says how.
    """

    key: str
    error: str | None = None
    end: WorkerEnd | None = None


class Driver(Protocol):
    """The contract. Every method is idempotent and raises `osrdyne.errors.DriverError` with a reason.

    Where the engine does not answer, that is an `EngineAway`, or one that it is the cause of: such a start says nothing
    about the workers of its key, and does not count as a failed one.
    """

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
        """Yield changes that the driver did not cause, and the end of each worker, as long as the driver is open."""

    async def close(self) -> None:
        """Release the driver's resources. Stops no worker."""
