"""Follows a run: every commit is checked at once, and what the end is judged by is kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from osrdyne_jobs import Run as DoneRun
from osrdyne_jobs import states
from simulation.jobs import commit_rules
from simulation.jobs.observer import Effect, Reader, Run, Snapshot
from simulation.jobs.scheduler import Process, Scheduler

#: Seconds of a lease of a worker. The pauses and outages of a scenario are shorter and longer.
LEASE_SECONDS = 30.0


@dataclass(slots=True)
class Watch:
    """What was seen of a run."""

    scheduler: Scheduler
    reader: Reader
    #: What was wrong with a commit.
    findings: list[str] = field(default_factory=list)
    latest: Snapshot = field(default_factory=Snapshot)
    #: Of each job, by its id: the run that had the lock when it was registered, if any.
    during: dict[int, int | None] = field(default_factory=dict)
    #: Of each job: the runs that it had, in their order.
    runs_of: dict[int, list[int]] = field(default_factory=dict)
    #: Of each run: the numbers of the commits of its effects.
    effects_of: dict[int, list[int]] = field(default_factory=dict)
    #: Runs that wrote the last of their effects.
    complete: set[int] = field(default_factory=set)
    #: The number of each job's plan.
    number_of: dict[int, int] = field(default_factory=dict)
    #: When something was wrong: begin, end, and with which process; None for all.
    troubles: list[tuple[float, float, str | None]] = field(default_factory=list)

    @classmethod
    def over(cls, scheduler: Scheduler, file: Path) -> Watch:
        return cls(scheduler, Reader(file))

    def committed(self) -> None:
        """Look at the database after a commit."""
        before = self.latest
        after, effects = self.reader.snapshot(before.number + 1, self.scheduler.now)
        self.latest = after
        try:
            wrong = [*commit_rules.check(before, after, effects), *self._healthy_and_lost(before, after)]
        except (KeyError, ValueError, IndexError) as error:
            wrong = [f"the database makes no sense: {type(error).__name__} {error}"]
        for finding in wrong:
            self.scheduler.note(f"WRONG: {finding}")
            self.findings.append(finding)
        self._keep(before, after, effects)

    def _keep(self, before: Snapshot, after: Snapshot, effects: list[Effect]) -> None:
        if after.jobs.keys() - before.jobs.keys():
            self.number_of = self.reader.numbers()
        for number, job in after.jobs.items():
            if number not in self.during:
                lock = after.locks.get(job.where)
                self.during[number] = lock.token if lock else None
            runs = self.runs_of.setdefault(number, [])
            if job.run_id is not None and job.run_id not in runs:
                runs.append(job.run_id)
        for effect in effects:
            self.effects_of.setdefault(effect.token, []).append(after.number)
            if effect.last:
                self.complete.add(effect.token)
        for token, run in after.runs.items():
            old = before.runs.get(token)
            if (old.outcome if old else None) != run.outcome or old is None:
                self.scheduler.note(f"run {token} of {run.type} {run.resource}: {run.outcome or 'begins'}")

    def _healthy_and_lost(self, before: Snapshot, after: Snapshot) -> list[str]:
        """Find runs that were taken from a worker with which nothing was wrong."""
        found = []
        for where, old in before.locks.items():
            run = after.runs.get(old.token)
            if run is None or run.outcome != states.LOST or before.runs[old.token].outcome is not None:
                continue
            if not self._troubled(run, before.runs[old.token].began_at, old.expires_at):
                found.append(f"run {old.token} of {where} was lost, although its worker was well")
        return found

    def _troubled(self, run: Run, begin: float, end: float) -> bool:
        return any(who in {None, run.worker} and began <= end and ended >= begin for began, ended, who in self.troubles)

    def paused(self, process: Process, until: float) -> None:
        # A process that stands still within a transaction holds up all others.
        self.troubles.append((self.scheduler.now, until + 1, None))

    def cut(self) -> None:
        # A worker does not renew the lease of a run of which it does not know.
        process = self.scheduler.me().process
        if process.mortal:
            self.troubles.append((self.scheduler.now, self.scheduler.now + LEASE_SECONDS, process.name))

    def gone(self, process: Process) -> None:
        self.troubles.append((self.scheduler.now, float("inf"), process.name))

    def is_over(self, run: DoneRun) -> bool:
        """Return whether a run has its lock no more."""
        lock = self.latest.locks.get((run.type, run.resource))
        return lock is None or lock.token != run.token

    # --- for the person ---------------------------------------------------------------------------------------

    def ids_of(self, number: int) -> list[int]:
        """Return the jobs of a plan."""
        return [job for job, planned in self.number_of.items() if planned == number]

    def parked(self) -> list[int]:
        """Return the jobs that are parked now."""
        return [number for number, job in self.latest.jobs.items() if job.state == states.PARKED]

    def settled(self) -> bool:
        """Whether all jobs that are registered have ended."""
        return all(job.state in {states.PARKED, *states.FINISHED} for job in self.latest.jobs.values())
