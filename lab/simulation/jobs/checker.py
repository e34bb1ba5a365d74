"""Judges a run by what the database, handlers, clients and persons saw. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from osrdyne_jobs import states
from simulation.jobs.observer import Job, Run, Where
from simulation.jobs.scenario import HandlerAction, Kind
from simulation.jobs.world import Outcome


@dataclass(slots=True)
class Verdict:
    """What is wrong, a sentence a finding, and how much there was."""

    lost: list[str] = field(default_factory=list)
    overlapping: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    jobs: int = 0
    runs: int = 0
    parked: int = 0
    cancelled: int = 0
    #: Runs whose lease ended.
    leases_lost: int = 0
    #: Handlers that went on while the next run had begun, and effects of theirs that a foreign store refused.
    late_handlers: int = 0
    refused: int = 0

    def findings(self) -> list[str]:
        return [
            *(f"lost: {job}" for job in self.lost),
            *(f"overlapping: {run}" for run in self.overlapping),
            *(f"broken: {rule}" for rule in self.broken),
        ]


def check(outcome: Outcome) -> Verdict:
    """Judge a run."""
    watch = outcome.watch
    jobs, runs = watch.latest.jobs, watch.latest.runs
    ended = _final_states(outcome)
    verdict = Verdict(
        jobs=len(ended),
        runs=len(runs),
        parked=sum(state == states.PARKED for state in ended.values()),
        cancelled=sum(state == states.CANCELLED for state in ended.values()),
        leases_lost=sum(run.outcome == states.LOST for run in runs.values()),
        late_handlers=outcome.handlers.overlapping,
        refused=len(outcome.handlers.refused),
    )
    verdict.lost += _lost(outcome, ended)
    verdict.overlapping += _overlapping(outcome)
    # A long series of the same findings says no more than its begin.
    verdict.broken += watch.findings[:10]
    verdict.broken += outcome.errors[:10]
    verdict.broken += [f"the handler of run {run} began after its lease" for run in outcome.handlers.begun_late[:10]]
    for part in (_ends, _attempts, _one_more_run, _order, _outbox, _foreign_store):
        verdict.broken += part(outcome)
    if outcome.scenario.kind is Kind.CALM:
        verdict.broken += _exact(outcome, list(jobs.values()))
    return verdict


def _final_states(outcome: Outcome) -> dict[int, str]:
    latest = outcome.watch.latest
    return {**latest.archived, **{number: job.state for number, job in latest.jobs.items()}}


def _lost(outcome: Outcome, ended: dict[int, str]) -> Iterator[str]:
    for number in outcome.watch.during:
        state = ended.get(number)
        if state not in {states.PARKED, *states.FINISHED}:
            yield f"job {number} is {state or 'gone'} in the end"
    for numbers in outcome.ledger.registered.values():
        for number in numbers:
            if number not in ended:
                yield f"job {number} was registered, and is gone"
    left = outcome.scenario.jobs if outcome.ledger.clients_done < 2 else ()
    for plan in left:
        if plan.number not in outcome.ledger.registered and not outcome.watch.ids_of(plan.number):
            yield f"the job of plan {plan.number} could never be registered"


def _overlapping(outcome: Outcome) -> Iterator[str]:
    """The accepted effects of one run of a type and resource all come before those of the next one."""
    spans: dict[Where, list[tuple[int, int, int]]] = defaultdict(list)
    for token, commits in outcome.watch.effects_of.items():
        where = outcome.watch.latest.runs[token].where
        spans[where].append((min(commits), max(commits), token))
    for where, those in spans.items():
        those.sort()
        for (_, last, earlier), (first, _, other) in pairwise(those):
            if first < last:
                yield f"effects of the runs {earlier} and {other} of {where}"
            if other < earlier:
                yield f"effects of run {other} of {where} come after those of run {earlier}"


def _ends(outcome: Outcome) -> Iterator[str]:
    """What is done was done, what is cancelled was cancelled by a person, what was cancelled is not begun again."""
    ledger, watch = outcome.ledger, outcome.watch
    for number, state in _final_states(outcome).items():
        runs = [watch.latest.runs[token] for token in watch.runs_of.get(number, [])]
        if state == states.DONE and (not runs or runs[-1].outcome != states.DONE):
            yield f"job {number} is done, and no run did it"
        elif state == states.DONE and runs[-1].id not in watch.complete & outcome.handlers.returned:
            yield f"job {number} is done, and its handler has not written all"
        elif state == states.CANCELLED and number not in ledger.cancel_asked:
            yield f"job {number} is cancelled, and no person cancelled it"
        elif state in states.WAITING and number in ledger.cancel_taken:
            yield f"job {number} was cancelled, and waits"


def _attempts(outcome: Outcome) -> Iterator[str]:
    """Each run of a job is an attempt of its history; a parked job has as many as its type gives it."""
    watch = outcome.watch
    for number, runs in watch.runs_of.items():
        noted = outcome.attempts.get(number, [])
        if noted != runs:
            yield f"job {number} had the runs {runs}, and its attempts are {noted}"
        job = watch.latest.jobs.get(number)
        if job is None or number in outcome.ledger.redo_asked:
            continue
        if job.attempts != len(runs):
            yield f"job {number} had {len(runs)} runs, and counts {job.attempts}"
        outcomes = [watch.latest.runs[token].outcome for token in runs]
        if job.state == states.PARKED and (len(runs) != job.max_attempts or states.DONE in outcomes):
            yield f"job {number} is parked after the runs {outcomes}"


def _one_more_run(outcome: Outcome) -> Iterator[str]:
    """Coalescing jobs that were registered during one run all begin with one further run."""
    watch = outcome.watch
    groups: dict[int, dict[int, int]] = defaultdict(dict)
    for number, during in watch.during.items():
        runs = watch.runs_of.get(number)
        if during is None or not runs or not _coalesces(outcome, number):
            continue
        if runs[0] == during:
            yield f"job {number} was registered during run {during}, and counts as done by it"
        groups[during][number] = runs[0]
    for during, firsts in groups.items():
        if len(set(firsts.values())) > 1:
            yield f"jobs that were registered during run {during} began with the runs {sorted(set(firsts.values()))}"


def _coalesces(outcome: Outcome, number: int) -> bool:
    planned = outcome.watch.number_of[number]
    return any(plan.number == planned and plan.type == "merged" for plan in outcome.scenario.jobs)


def _order(outcome: Outcome) -> Iterator[str]:
    """Jobs that do not coalesce begin for the first time in the order of their registration."""
    watch = outcome.watch
    firsts: dict[Where, list[tuple[int, int]]] = defaultdict(list)
    for number in sorted(watch.runs_of):
        runs = watch.runs_of[number]
        if runs and not _coalesces(outcome, number):
            firsts[watch.latest.runs[runs[0]].where].append((number, runs[0]))
    for where, those in firsts.items():
        begun = [token for _, token in those]
        if begun != sorted(begun):
            yield f"jobs of {where} began in another order: {those}"


def _outbox(outcome: Outcome) -> Iterator[str]:
    """A job of a client's own transaction is there exactly where the rest of that transaction is."""
    for plan in outcome.scenario.jobs:
        jobs = outcome.watch.ids_of(plan.number)
        if plan.outbox and len(jobs) != (plan.number in outcome.notes):
            written = "was" if plan.number in outcome.notes else "was not"
            yield f"plan {plan.number} has the jobs {jobs}, and what is written with them {written} committed"


def _foreign_store(outcome: Outcome) -> Iterator[str]:
    """A store that checks tokens refuses only runs that were lost."""
    for token in outcome.handlers.refused:
        if outcome.watch.latest.runs[token].outcome == states.DONE:
            yield f"run {token} is done, and a store refused its token"


def _exact(outcome: Outcome, jobs: list[Job]) -> Iterator[str]:
    """Where nothing fails, each job has the runs that its handler asks for, and no more."""
    plans = outcome.handlers.plans
    for job in jobs:
        plan = plans[outcome.watch.number_of[job.id]]
        if (
            job.coalesce
            or plan.cancel_after is not None
            or plan.do is HandlerAction.HANG
            or job.id in outcome.ledger.redo_asked
        ):
            continue
        expected = min(plan.fails + 1, job.max_attempts)
        runs = [run for run in _runs_of(outcome, job) if run.outcome != states.CANCELLED]
        if len(runs) != expected:
            yield f"job {job.id} had {len(runs)} runs, not {expected}, and nothing failed"
        if (job.state == states.PARKED) != (plan.fails >= job.max_attempts):
            yield f"job {job.id} is {job.state}, and its handler raises {plan.fails} times"


def _runs_of(outcome: Outcome, job: Job) -> list[Run]:
    return [outcome.watch.latest.runs[token] for token in outcome.watch.runs_of[job.id]]
