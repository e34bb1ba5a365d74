"""What must hold for each commit: which changes the database may see, whichever program made them. Pure.

Each rule compares the database before and after one commit, and yields a sentence for what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from osrdyne_jobs import states
from simulation.jobs.observer import Effect, Job, Run, Snapshot

#: What may become of a job in one commit. A takeover ends a run and begins the next one in one.
_CHANGES = {
    None: {states.REGISTERED},
    states.REGISTERED: {states.RUNNING, states.CANCELLED},
    states.FAILED: {states.RUNNING, states.CANCELLED, states.REGISTERED},
    states.RUNNING: {states.DONE, states.FAILED, states.PARKED, states.CANCELLED, states.RUNNING},
    states.PARKED: {states.CANCELLED, states.REGISTERED},
    states.CANCELLED: {states.REGISTERED},
    states.DONE: set(),
}
#: For sums of floating-point numbers.
_NEARLY = 1e-3


def check(before: Snapshot, after: Snapshot, effects: Iterable[Effect]) -> Iterator[str]:
    """Yield all that is wrong with a commit."""
    yield from _changes(before, after)
    yield from _gone(before, after)
    yield from _running_with_lock(after)
    yield from _outcomes(before, after)
    yield from _leases(before, after)
    yield from _begins(before, after)
    yield from _pauses(before, after)
    yield from _oldest_first(before, after)
    yield from _fenced(before, after, effects)


def _changes(before: Snapshot, after: Snapshot) -> Iterator[str]:
    for number, job in after.jobs.items():
        old = before.jobs.get(number)
        if (old is None or old.state != job.state) and job.state not in _CHANGES[old.state if old else None]:
            yield f"job {number} went from {old.state if old else 'nothing'} to {job.state}"
        if old is None:
            continue
        if old.cancel and old.state == states.RUNNING and job.state in {states.FAILED, states.PARKED}:
            yield f"job {number} was cancelled while it ran, and is {job.state}"
        if old.run_id != job.run_id and job.state != states.RUNNING and job.attempts == old.attempts:
            yield f"job {number} has run {job.run_id} without an attempt"
        if job.attempts > job.max_attempts:
            yield f"job {number} has {job.attempts} attempts of {job.max_attempts}"


def _gone(before: Snapshot, after: Snapshot) -> Iterator[str]:
    for number, job in before.jobs.items():
        if number not in after.jobs and after.archived.get(number) != job.state:
            yield f"job {number}, {job.state}, is gone"
        if number not in after.jobs and job.state not in states.FINISHED:
            yield f"job {number} moved to the history as {job.state}"


def _running_with_lock(after: Snapshot) -> Iterator[str]:
    """A running job has the run that has the lock, and a run has one job, or coalesced ones."""
    single: dict[int | None, int] = {}
    for job in after.jobs.values():
        if job.state != states.RUNNING:
            continue
        lock = after.locks.get(job.where)
        if lock is None or lock.token != job.run_id:
            yield f"job {job.id} runs, and its run {job.run_id} has no lock"
        if not job.coalesce and single.setdefault(job.run_id, job.id) != job.id:
            yield f"run {job.run_id} has two jobs that do not coalesce"


def _outcomes(before: Snapshot, after: Snapshot) -> Iterator[str]:
    """A run ends once, and a run that has ended has no lock."""
    held = {lock.token for lock in after.locks.values()}
    for token, run in after.runs.items():
        old = before.runs.get(token)
        if old is not None and old.outcome is not None and (old.outcome, old.ended_at) != (run.outcome, run.ended_at):
            yield f"run {token} ended as {old.outcome}, and again as {run.outcome}"
        if (run.outcome is None) != (token in held):
            yield f"run {token} is {run.outcome or 'not over'}, and {'has' if token in held else 'has not'} the lock"


def _leases(before: Snapshot, after: Snapshot) -> Iterator[str]:
    """A run keeps its lock until it ends, or its lease does; tokens grow."""
    for where, old in before.locks.items():
        new = after.locks.get(where)
        if new is not None and new.token < old.token:
            yield f"the token of {where} went from {old.token} to {new.token}"
        if new is not None and new.token == old.token:
            continue
        run = after.runs.get(old.token)
        if (run is None or run.outcome in {states.LOST, None}) and old.expires_at > after.at + _NEARLY:
            yield f"run {old.token} lost its lock {old.expires_at - after.at:.1f} s before its lease ended"


def _begins(before: Snapshot, after: Snapshot) -> Iterator[str]:
    """A run takes the oldest job that is due, and all that coalesce with it."""
    for token, run in after.runs.items():
        if token in before.runs:
            continue
        mine = [job for job in after.jobs.values() if job.run_id == token]
        if not mine:
            yield f"run {token} has no job"
            continue
        for job in mine:
            old = before.jobs[job.id]
            if old.attempts + 1 != job.attempts:
                yield f"job {job.id} went from attempt {old.attempts} to {job.attempts}"
            if old.cancel:
                yield f"job {job.id} was cancelled, and run {token} begins it again"
        yield from _left_behind(run, mine, before, after)


def _was_due(job: Job, before: Snapshot, after: Snapshot) -> bool:
    """Whether a job that waits was due when this commit's transaction chose one, which may be long before its end."""
    old = before.jobs.get(job.id)
    if old is not None and old.waits:
        return job.begin_after <= before.at
    ended = None if job.run_id is None else after.runs[job.run_id].ended_at
    return ended is not None and job.begin_after <= ended + _NEARLY


def _left_behind(run: Run, mine: list[Job], before: Snapshot, after: Snapshot) -> Iterator[str]:
    first = min(job.id for job in mine)
    for job in after.jobs.values():
        if job.where != run.where or not job.waits:
            continue
        if job.id < first and _was_due(job, before, after):
            yield f"run {run.id} begins with job {first}, although job {job.id} is older and due"
        if job.coalesce and mine[0].coalesce:
            yield f"run {run.id} leaves job {job.id} to another run"


def _pauses(before: Snapshot, after: Snapshot) -> Iterator[str]:
    """A job that failed waits for longer after each attempt; it is parked after the last one, and not before."""
    for number, job in after.jobs.items():
        old = before.jobs.get(number)
        if old is None or old.state == job.state:
            continue
        if job.state == states.PARKED and job.attempts < job.max_attempts:
            yield f"job {number} is parked after {job.attempts} of {job.max_attempts} attempts"
        if job.state != states.FAILED:
            continue
        if job.attempts >= job.max_attempts:
            yield f"job {number} has another attempt after {job.attempts} of {job.max_attempts}"
        run = after.runs[job.run_id or 0]
        if run.outcome == states.FAILED and run.ended_at is not None and not job.coalesce:
            pause = job.begin_after - run.ended_at
            longest = min(600.0, 5.0 * 2 ** (job.attempts - 1))
            # The process may stand still within the transaction, after it noted the end.
            if pause < longest * 0.75 - _NEARLY or job.begin_after > after.at + longest + _NEARLY:
                yield f"job {number} waits {pause:.1f} s after attempt {job.attempts}, not about {longest:.1f} s"


def _oldest_first(before: Snapshot, after: Snapshot) -> Iterator[str]:
    """Redo takes due jobs in the order in which they became due, whether they are new or failed."""

    def taken(job: Job) -> bool:
        return job.id in after.jobs and after.jobs[job.id].casts > job.casts

    due = [job for job in before.jobs.values() if job.waits]
    last = max(((job.due_at, job.id) for job in due if taken(job)), default=None)
    for job in due:
        if last is not None and (job.due_at, job.id) < last and not taken(job) and after.jobs[job.id].waits:
            yield f"redo takes a job that was due later than job {job.id}, {job.state}"


def _fenced(before: Snapshot, after: Snapshot, effects: Iterable[Effect]) -> Iterator[str]:
    """What a run writes is committed only while it has the lock."""
    for effect in effects:
        lock = before.locks.get((effect.type, effect.resource))
        if lock is None or lock.token != effect.token:
            yield f"an effect of run {effect.token} was taken, and run {lock.token if lock else 'none'} has the lock"
