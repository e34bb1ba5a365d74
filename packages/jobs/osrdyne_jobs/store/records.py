"""What the store returns: a job, a run that has begun, and what is cast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it is in the database. Times are seconds since the Unix epoch on the database's clock."""

    id: int
    type: str
    resource: str
    #: JSON.
    payload: str
    coalesce: bool
    state: str
    #: Runs that began.
    attempts: int
    max_attempts: int
    registered_at: float
    #: It does not begin earlier: the pause between two attempts.
    begin_after: float
    #: When it is cast (again), where it waits.
    due_at: float
    #: Its last run.
    run_id: int | None
    #: It was cancelled while it ran.
    cancel: bool
    finished_at: float | None
    #: Why its last attempt failed; while it is registered, why no worker could begin it.
    reason: str | None


FIELDS = tuple(Job.__dataclass_fields__)


class RunLock(NamedTuple):
    """Which run has a lock."""

    #: Grows from run to run of one type and resource: the fencing token.
    token: int
    #: The worker and a random word. A database that is restored gives its tokens again, to other runs.
    holder: str


@dataclass(frozen=True, slots=True)
class StartedRun:
    """A run that has begun."""

    run_lock: RunLock
    type: str
    resource: str
    #: The job that was registered last of those that this run does.
    job: int
    #: Its payload, as JSON.
    payload: str
    #: How many jobs this run does: one, or several coalesced ones.
    jobs: int
    #: Attempts of that job, this one included.
    attempts: int

    @property
    def token(self) -> int:
        """The fencing token."""
        return self.run_lock.token


@dataclass(frozen=True, slots=True)
class Hint:
    """What is cast: a worker that gets it looks for what is to be done."""

    job: int
    type: str
    resource: str
    #: How often redo cast it before, and it did not begin.
    casts: int = 0
