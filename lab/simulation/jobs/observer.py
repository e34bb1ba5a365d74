"""Reads the database after each commit, over a connection of its own, and keeps what has changed.

It sees every state that the database was ever in, and nothing of what the product's code keeps in memory.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from osrdyne_jobs import states

Where = tuple[str, str]


class Job(NamedTuple):
    """A row of the jobs."""

    id: int
    type: str
    resource: str
    coalesce: bool
    state: str
    attempts: int
    max_attempts: int
    begin_after: float
    due_at: float
    casts: int
    run_id: int | None
    cancel: bool

    @property
    def where(self) -> Where:
        return self.type, self.resource

    @property
    def waits(self) -> bool:
        return self.state in states.WAITING


class Run(NamedTuple):
    """A row of the runs."""

    id: int
    type: str
    resource: str
    worker: str
    began_at: float
    ended_at: float | None
    outcome: str | None

    @property
    def where(self) -> Where:
        return self.type, self.resource


class Lock(NamedTuple):
    """A row of the locks."""

    token: int
    worker: str
    expires_at: float


class Effect(NamedTuple):
    """What a handler wrote in a transaction of its run."""

    id: int
    type: str
    resource: str
    token: int
    last: bool


@dataclass(slots=True)
class Snapshot:
    """The database after a commit."""

    #: Commits before this one.
    number: int = 0
    #: Seconds, on the database's clock.
    at: float = 0.0
    #: Jobs that have not moved to the history.
    jobs: dict[int, Job] = field(default_factory=dict)
    archived: dict[int, str] = field(default_factory=dict)
    runs: dict[int, Run] = field(default_factory=dict)
    locks: dict[Where, Lock] = field(default_factory=dict)


_JOBS = (
    "SELECT id, type, resource, coalesce, state, attempts, max_attempts, begin_after, due_at, casts, run_id, cancel"
    " FROM osrdyne_job"
)
_RUNS = "SELECT id, type, resource, worker, began_at, ended_at, outcome FROM osrdyne_job_run"
_LOCKS = "SELECT type, resource, run_id, worker, expires_at FROM osrdyne_job_lock"
_EFFECTS = "SELECT id, type, resource, token, last FROM simulated_effect WHERE id > ? ORDER BY id"


class Reader:
    """Reads the database."""

    def __init__(self, file: Path) -> None:
        self._connection = sqlite3.connect(file, isolation_level=None)
        self._effects = 0

    def snapshot(self, number: int, at: float) -> tuple[Snapshot, list[Effect]]:
        """Return what the database has now, and the effects that are new."""
        read = self._connection.execute
        jobs = {row[0]: Job(*row) for row in read(_JOBS)}
        runs = {row[0]: Run(*row) for row in read(_RUNS)}
        locks = {(row[0], row[1]): Lock(*row[2:]) for row in read(_LOCKS)}
        archived = dict(read("SELECT id, state FROM osrdyne_job_history").fetchall())
        effects = [Effect(*row) for row in read(_EFFECTS, (self._effects,))]
        self._effects = max([self._effects, *(effect.id for effect in effects)])
        return Snapshot(number, at, jobs, archived, runs, locks), effects

    def numbers(self) -> dict[int, int]:
        """Return the number of the plan of each job, by its id."""
        numbers = {}
        for table in ("osrdyne_job", "osrdyne_job_history"):
            query = f"SELECT id, json_extract(payload, '$.number') FROM {table}"  # noqa: S608 - our own names
            numbers.update(dict(self._connection.execute(query).fetchall()))
        return numbers

    def attempts(self) -> dict[int, list[int]]:
        """Return the runs of each job, in their order."""
        found: dict[int, list[int]] = {}
        for job, run in self._connection.execute("SELECT job_id, run_id FROM osrdyne_job_attempt ORDER BY run_id"):
            found.setdefault(job, []).append(run)
        return found

    def notes(self) -> set[int]:
        """Return the numbers that clients noted within their own transactions."""
        return {row[0] for row in self._connection.execute("SELECT number FROM simulated_note")}

    def close(self) -> None:
        self._connection.close()
