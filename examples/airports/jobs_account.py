"""What became of the jobs of `make demo-jobs`: the account, and its line for scripts. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import NamedTuple

#: An airport, and a day.
Task = tuple[str, date]


class Effect(NamedTuple):
    """A run whose effect the database accepted, and when it worked."""

    resource: str
    #: The fencing token of the run.
    token: int
    #: Seconds of one clock: when the handler began, and when it was about to commit.
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class Account:
    """The numbers of one run of the demo."""

    registered: int
    done: int
    #: Runs that began: more than jobs, where workers were killed.
    runs: int
    parked: int
    #: Jobs that neither are done, with their result, nor are parked.
    lost: int
    #: Pairs of runs of one resource that worked at the same time.
    overlapping: int
    #: Results that differ from the figures of the whole table, or have no job.
    wrong: int

    @property
    def good(self) -> bool:
        """Whether every job was done, or parked, and rightly."""
        return not (self.lost or self.overlapping or self.wrong)

    @property
    def last_line(self) -> str:
        """The line that a script looks for."""
        names = ("registered", "done", "runs", "parked", "lost", "overlapping")
        return "jobs: " + " ".join(f"{name}={getattr(self, name)}" for name in names)


def overlapping(effects: Iterable[Effect]) -> int:
    """Count the pairs of runs of one resource whose times overlap. A run may begin when another one ends."""
    by_resource: dict[str, list[Effect]] = defaultdict(list)
    for effect in effects:
        by_resource[effect.resource].append(effect)
    return sum(map(_pairs, by_resource.values()))


def _pairs(effects: list[Effect]) -> int:
    pairs = 0
    still: list[float] = []
    for run in sorted(effects, key=lambda effect: effect.began):
        still = [ended for ended in still if ended > run.began]
        pairs += len(still)
        still.append(run.ended)
    return pairs


def lost(submitted: Mapping[int, Task], states: Mapping[int, str], results: Collection[Task]) -> set[int]:
    """Return the jobs that are neither done, with their result, nor parked.

    `submitted` are those that `submit` returned, `states` those of the database, both by the id of the job.
    """

    def is_lost(job: int) -> bool:
        state = states.get(job)
        return state != "parked" and (state != "done" or submitted.get(job) not in results)

    return {job for job in submitted.keys() | states.keys() if is_lost(job)}


def wrong(
    results: Mapping[Task, tuple[int, int, float | None]], expected: Mapping[Task, tuple[int, int, float | None]]
) -> set[Task]:
    """Return the airports and days whose figures are not the expected ones. Days that are not expected have none."""
    return {task for task, figures in results.items() if tuple(figures) != expected.get(task, (0, 0, None))}


def account(
    submitted: Mapping[int, Task],
    states: Mapping[int, str],
    runs: int,
    results: Mapping[Task, tuple[int, int, float | None]],
    effects: Iterable[Effect],
    expected: Mapping[Task, tuple[int, int, float | None]],
) -> Account:
    """Return the numbers: jobs as clients and database know them, their results, and the figures expected."""
    of_no_job = results.keys() - set(submitted.values())
    return Account(
        registered=len(submitted.keys() | states.keys()),
        done=sum(state == "done" for state in states.values()),
        runs=runs,
        parked=sum(state == "parked" for state in states.values()),
        lost=len(lost(submitted, states, results)),
        overlapping=overlapping(effects),
        wrong=len(wrong(results, expected) | of_no_job),
    )
