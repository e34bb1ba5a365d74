"""What handlers do: work, and effects in the fenced transaction and in a foreign store.

They fail, hang, or go on until they are cancelled, where the plan of the job says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from sqlalchemy import text

from osrdyne_jobs import JobCancelled, Run
from simulation.jobs.scenario import HandlerAction, Plan
from simulation.jobs.scheduler import Scheduler

_EFFECT = text("INSERT INTO simulated_effect (type, resource, token, last) VALUES (:type, :resource, :token, :last)")
#: Seconds between two looks whether the run was cancelled.
LOOK_SECONDS = 1.0
#: Seconds after which the driver kills a worker whose handler hangs.
HANG_SECONDS = 20.0


class PlannedError(Exception):
    """The handler raises, as its plan says."""


@dataclass(slots=True)
class ForeignStore:
    """A store outside of the database, which refuses a token smaller than one that it has seen."""

    #: By type and resource: the largest token.
    largest: dict[tuple[str, str], int] = field(default_factory=dict)

    def write(self, type: str, resource: str, token: int) -> bool:  # noqa: A002
        """Return whether the store took it."""
        if token < self.largest.get((type, resource), 0):
            return False
        self.largest[type, resource] = token
        return True


@dataclass(slots=True)
class Handlers:
    """The handlers of all workers of a run."""

    scheduler: Scheduler
    #: The plan of each job, by its number.
    plans: dict[int, Plan]
    #: Whether a run has its lock no more.
    is_over: Callable[[Run], bool]
    store: ForeignStore = field(default_factory=ForeignStore)
    #: Jobs that a person gave new attempts. They do not fail again.
    mended: set[int] = field(default_factory=set)
    #: Tokens of runs whose handler returned.
    returned: set[int] = field(default_factory=set)
    #: Tokens of runs whose handler began when another run had the lock.
    begun_late: list[int] = field(default_factory=list)
    #: Tokens that the foreign store refused.
    refused: list[int] = field(default_factory=list)
    #: Runs of each (type, resource) that are in their handler, and how often there were two.
    overlapping: int = 0
    _within: dict[tuple[str, str], int] = field(default_factory=dict)

    def handle(self, run: Run) -> None:
        """Do what the plan of the run's job says."""
        where = run.type, run.resource
        if self.is_over(run):
            self.begun_late.append(run.token)
        within = self._within.get(where, 0)
        self.overlapping += bool(within)
        self._within[where] = within + 1
        try:
            self._do(run, self.plans[run.payload["number"]])
        finally:
            self._within[where] -= 1

    def _do(self, run: Run, plan: Plan) -> None:
        self.scheduler.note(f"handler of {run.type} {run.resource}: run {run.token}, job {run.job}, {plan.do.value}")
        self._effect(run, last=False)
        mended = plan.number in self.mended
        if plan.do is HandlerAction.UNTIL_CANCELLED:
            self._work(run, 1e9, listens=True)
        elif plan.do is HandlerAction.HANG and run.attempt == 1 and not mended:
            self.scheduler.after(HANG_SECONDS, partial(self.scheduler.kill, self.scheduler.me().process))
            self._work(run, 1e9, listens=False)
        self._work(run, plan.work, listens=plan.listens)
        if run.attempt <= plan.fails and not mended:
            raise PlannedError(f"attempt {run.attempt}")
        self._effect(run, last=True)
        self.returned.add(run.token)

    def _work(self, run: Run, seconds: float, *, listens: bool) -> None:
        until = self.scheduler.now + seconds
        while (left := until - self.scheduler.now) > 0:
            self.scheduler.sleep(min(left, LOOK_SECONDS))
            if listens and run.cancelled.is_set():
                raise JobCancelled("it heard of it")

    def _effect(self, run: Run, *, last: bool) -> None:
        if not self.store.write(run.type, run.resource, run.token):
            self.refused.append(run.token)
        values = {"type": run.type, "resource": run.resource, "token": run.token, "last": last}
        with run.transaction() as connection:
            connection.execute(_EFFECT, values)
