"""What became of every job of a run. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple


class Job(NamedTuple):
    """A job as it is in the database at the end."""

    state: str
    #: The token of its last run.
    token: int | None


class Effect(NamedTuple):
    """A run whose effect the database accepted. Times are those of the machine's monotonic clock, in seconds."""

    token: int
    type: str
    resource: str
    #: When its handler began, and when it was about to commit.
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class Account:
    """The numbers of one run."""

    registered: int
    done: int
    #: Runs that began. Fewer than jobs where these are coalesced, more where processes were killed.
    runs: int
    #: Writes of runs that had lost their lease.
    refused: int
    parked: int
    #: Jobs that neither were done nor are parked.
    lost: tuple[int, ...]
    #: Runs that worked while one of the same type and resource did, as pairs of tokens. Both effects were accepted.
    overlapping: tuple[tuple[int, int], ...]


def lost(submitted: Mapping[int, float], jobs: Mapping[int, Job], effects: Iterable[Effect]) -> list[int]:
    """Return the jobs that were not done: they are gone, wait, or their run left no effect or began before them.

    `submitted`: when the jobs were asked for that a client knows to be registered. A coalesced job that is counted with
    a run which had begun by then was not done by it.
    """
    began = {effect.token: effect.began for effect in effects}

    def is_lost(number: int) -> bool:
        job = jobs.get(number)
        if job is None or job.state != "done" or job.token not in began:
            return job is None or job.state != "parked"
        return began[job.token] < submitted.get(number, began[job.token])

    return [number for number in sorted(submitted.keys() | jobs.keys()) if is_lost(number)]


def overlapping(effects: Iterable[Effect]) -> list[tuple[int, int]]:
    """Return the runs, as pairs of tokens, that began before one of the same type and resource had ended."""
    latest: dict[tuple[str, str], Effect] = {}
    pairs = []
    for done in sorted(effects, key=lambda effect: effect.began):
        before = latest.get((done.type, done.resource))
        if before is not None and done.began < before.ended:
            pairs.append((before.token, done.token))
        if before is None or done.ended > before.ended:
            latest[done.type, done.resource] = done
    return pairs


def account(
    submitted: Mapping[int, float], jobs: Mapping[int, Job], effects: list[Effect], *, runs: int, refused: int
) -> Account:
    """Return the numbers: jobs as clients and database know them, and the effects of runs."""
    states = [job.state for job in jobs.values()]
    return Account(
        registered=len(submitted.keys() | jobs.keys()),
        done=states.count("done"),
        runs=runs,
        refused=refused,
        parked=states.count("parked"),
        lost=tuple(lost(submitted, jobs, effects)),
        overlapping=tuple(overlapping(effects)),
    )
