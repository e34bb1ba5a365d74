"""What people and monitoring want to know of all jobs: how many, how old, how late, and why they fail. Reads only.

Each question is answered by an index, or reads a bounded number of rows. The history is not counted. Ages are in
seconds on the database's clock.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from osrdyne_jobs import states
from osrdyne_jobs.database.engines import now
from osrdyne_jobs.database.tables import HAS_FAILED, IS_WAITING, job, lock, run

#: Seconds back to which `runs` counts.
RUNS_WINDOW_SECONDS = 3600.0
#: Failed and parked jobs whose reasons are compared: the latest ones.
MOST_REASONS = 5000
#: Characters of a reason that are compared.
REASON_BEGIN = 300
#: The outcomes of a run.
OUTCOMES = (states.DONE, states.FAILED, states.CANCELLED, states.LOST)

#: What differs between two failures of one cause: quoted values, hexadecimal and decimal numbers.
_VALUES = re.compile(r"'[^']*'|\"[^\"]*\"|\b0x[0-9a-fA-F]+\b|\b(?=[0-9a-f-]*\d)[0-9a-f]{8,}(?:-[0-9a-f]+)*\b|\d+")


@dataclass(frozen=True, slots=True)
class StateFigures:
    """The jobs of one state."""

    state: str
    jobs: int
    #: Id of the job that was registered first; None where there is no job.
    oldest: int | None
    #: Seconds since its registration.
    age: float | None


@dataclass(frozen=True, slots=True)
class FailureCause:
    """Jobs of one type that failed or are parked for reasons that differ in numbers and quoted values only."""

    type: str
    #: The first line of the latest one's reason.
    reason: str
    jobs: int
    #: Id of the job that was registered last of them.
    latest: int


def by_state(connection: Connection) -> list[StateFigures]:
    """Return number and oldest job of each state, also of states without a job."""
    grouped = select(job.c.state, func.count().label("jobs"), func.min(job.c.id).label("oldest"))
    by_state = grouped.group_by(job.c.state).subquery()
    query = select(by_state.c.state, by_state.c.jobs, by_state.c.oldest, now() - job.c.registered_at)
    rows = connection.execute(query.join(job, job.c.id == by_state.c.oldest)).all()
    found = {state: StateFigures(state, int(jobs), int(oldest), max(0.0, age)) for state, jobs, oldest, age in rows}
    return [found.get(state, StateFigures(state, 0, None, None)) for state in states.STATES]


def redo_lag(connection: Connection) -> float:
    """Return for how many seconds the most overdue job has waited for redo; 0 where none is overdue."""
    # Not min(): for that, SQLite would read every job that waits.
    query = select(now() - job.c.due_at).where(IS_WAITING).order_by(job.c.due_at, job.c.id).limit(1)
    return max(0.0, connection.execute(query).scalar() or 0.0)


def runs(connection: Connection) -> dict[str, int]:
    """Return how many runs ended within `RUNS_WINDOW_SECONDS`, by outcome."""
    query = (
        select(run.c.outcome, func.count()).where(run.c.ended_at > now() - RUNS_WINDOW_SECONDS).group_by(run.c.outcome)
    )
    rows = connection.execute(query).all()
    return dict.fromkeys(OUTCOMES, 0) | {outcome: int(count) for outcome, count in rows}


def expired_leases(connection: Connection) -> int:
    """Return how many runs have lost their lease, and neither redo nor another worker has noticed it."""
    query = select(func.count()).select_from(lock).where(lock.c.expires_at <= now())
    return int(connection.execute(query).scalar_one())


def causes(connection: Connection, *, most: int = 10) -> list[FailureCause]:
    """Return why jobs failed or are parked, the most frequent causes first.

    Looks at the latest `MOST_REASONS` of these jobs.
    """
    query = select(job.c.id, job.c.type, func.substr(job.c.reason, 1, REASON_BEGIN)).where(HAS_FAILED)
    rows = connection.execute(query.order_by(job.c.id.desc()).limit(MOST_REASONS))
    failures = ((number, type, reason or "no reason is known") for number, type, reason in rows)  # noqa: A001
    return grouped_causes(failures)[:most]


def grouped_causes(failures: Iterable[tuple[int, str, str]]) -> list[FailureCause]:
    """Return the causes of failures, each of which is a job's id, its type and its reason. Pure."""
    found: dict[tuple[str, str], FailureCause] = {}
    for number, type, reason in sorted(failures):  # noqa: A001 - the field's name
        line = reason.strip().partition("\n")[0]
        which = (type, _VALUES.sub("#", line))
        before = found[which].jobs if which in found else 0
        found[which] = FailureCause(type, line, before + 1, number)
    return sorted(found.values(), key=lambda cause: (-cause.jobs, -cause.latest))
