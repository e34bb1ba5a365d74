"""The faults. Each does one, undoes it, waits for evidence that it happened, and returns that for people.

A fault whose evidence does not come raises AssertionError: it has not happened, or was not noticed.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

import psutil
from sqlalchemy import delete, func, select

from faults.jobs import load
from faults.jobs.processes import WORKER, Busy, Processes
from faults.jobs.worker import BEGINS, REFUSED, WRITES
from osrdyne_jobs import states
from osrdyne_jobs.database import tables
from osrdyne_jobs.database.engines import now
from osrdyne_protocol.worker_environment import WORKER_ID
from testbed.dockerd import runs
from testbed.waiting import until

#: Seconds within which a fault must show.
PATIENCE_SECONDS = 90.0
#: What PostgreSQL logs when it starts after it was killed.
RECOVERED = "database system was not properly shut down"

Fault = Callable[[Processes, Random], str]


def postgres_killed(processes: Processes, random: Random) -> str:
    """Kill it while jobs run, and keep it away for a moment, or for longer than their leases."""
    log = processes.postgres.directory / "log"
    before = log.read_text().count(RECOVERED)
    busy = until(processes.busy, within=PATIENCE_SECONDS, what="a run")
    processes.postgres.kill()
    processes.wait(random.choice([0.5, 1.5 * load.LEASE_SECONDS]) * random.uniform(0.8, 1.2))
    processes.postgres.start()
    assert log.read_text().count(RECOVERED) == before + 1, "PostgreSQL does not say that it was killed"
    return f"within {len(busy)} runs; its log says that it was not shut down"


def database_restored(processes: Processes, random: Random) -> str:
    """Put files of a back-up in place of the database's while all programs live; then say that it was restored.

    Ids come again before that is said, and the jobs that have them are done.
    """
    backup = processes.directory / "backup"
    processes.postgres.stop()
    processes.postgres.back_up(backup)
    began = time.monotonic()
    processes.postgres.start()
    processes.until_recovered(within=PATIENCE_SECONDS)
    processes.wait(random.uniform(0.0, 4.0))
    processes.postgres.kill()
    known = processes.newest_submitted()
    processes.forgotten.append((began, time.monotonic()))
    processes.postgres.restore(backup)
    processes.postgres.start()
    job = tables.job.c
    again = select(func.count()).where(job.registered_at > _clock(processes), job.id <= known, job.state == states.DONE)
    most = len(load.TYPES) * len(load.RESOURCES)
    until(
        lambda: (processes.read(lambda connection: connection.execute(again).scalar()) or 0) >= most,
        within=PATIENCE_SECONDS,
    )
    processes.say_restored()
    return f"{most} jobs whose ids had come again were done; then ids went on far above {known}"


def _clock(processes: Processes) -> float:
    """Return the time of the database."""
    return until(
        lambda: processes.read(lambda connection: connection.execute(select(now())).scalar_one()),
        within=PATIENCE_SECONDS,
    )


def broker_killed(processes: Processes, random: Random) -> str:
    """Kill it, and start it again in a moment."""
    before = until(lambda: _uptime(processes), within=PATIENCE_SECONDS, what="the broker's answer")
    processes.broker.kill()
    assert not processes.broker.is_running, "the broker still runs"
    processes.wait(random.uniform(0.0, 4.0))
    processes.broker.start()
    after = until(lambda: _uptime(processes), within=PATIENCE_SECONDS, what="the broker's answer")
    assert after < before, "the broker has not started again"
    return f"it had run for {before / 1000:.0f} s, and runs for {after / 1000:.0f} s"


def _uptime(processes: Processes) -> int:
    """Return for how long the broker has run, in milliseconds; 0 where it does not say so yet."""
    return int(processes.broker.management.get("nodes")[0].get("uptime", 0))


def worker_killed(processes: Processes, random: Random) -> str:
    """Kill a worker that has a job, at any moment of its run; another one takes the job over."""

    def killed() -> Busy | None:
        busy = processes.busy()
        if not busy:
            return None
        one = random.choice(busy)
        one.process.kill()
        until(lambda: not runs(one.process), within=PATIENCE_SECONDS, what="the end of the worker")
        ended = until(
            lambda: _outcome(processes, one.token), within=PATIENCE_SECONDS, what=f"the end of run {one.token}"
        )
        return one if ended == states.LOST else None  # else it had just ended

    one = until(killed, within=PATIENCE_SECONDS, what="a worker that is killed within a run")
    _until_done_again(processes, one)
    return f"run {one.token} of {one.type} {one.resource} is lost, its jobs are done by another"


def worker_stopped(processes: Processes, random: Random) -> str:
    """Stop a worker within a job, for longer than its lease. Another one does the job; then the first one wakes up.

    Its write is refused, and of all runs of the job only the other one has had an effect.
    """
    one = until(
        lambda: _stopped_within_a_run(processes, random),
        within=PATIENCE_SECONDS,
        what="a worker that stands within a run",
    )
    try:
        with _second_worker(processes, one):
            until(
                lambda: _outcome(processes, one.token) == states.LOST,
                within=PATIENCE_SECONDS,
                what="the loss of the lease",
            )
            _until_done_again(processes, one)
    finally:
        one.process.resume()
    until(
        lambda: {(REFUSED, one.token), (WRITES, one.token)} <= {*processes.noted()},
        within=PATIENCE_SECONDS,
        what="a refused write",
    )
    assert _outcome(processes, one.token) == states.LOST, f"run {one.token} has another outcome now"
    with_effect = _with_effect(processes, one.token)
    assert all(tokens and one.token not in tokens for tokens in with_effect.values()), f"effects of {with_effect}"
    return f"run {one.token} of {one.type} {one.resource} woke up, and its write was refused"


def _stopped_within_a_run(processes: Processes, random: Random) -> Busy | None:
    """Stop a worker between the begin of its handler and its write; None where none was there."""
    busy = processes.busy()
    if not busy:
        return None
    one = random.choice(busy)
    one.process.suspend()
    until(lambda: one.process.status() == psutil.STATUS_STOPPED, within=PATIENCE_SECONDS, what="the stop")
    noted = processes.noted()
    if (BEGINS, one.token) in noted and (WRITES, one.token) not in noted and _outcome(processes, one.token) is None:
        return one
    one.process.resume()
    return None


@contextmanager
def _second_worker(processes: Processes, one: Busy) -> Iterator[None]:
    """Run a second worker of the same key, as a group has it whose first one is taken for dead."""
    environment = one.process.environ()
    environment[WORKER_ID] += "-second"
    second = processes.start(WORKER, "second", env=environment, stdin=subprocess.DEVNULL)
    try:
        yield
        second.send_signal(signal.SIGTERM)
        second.wait(PATIENCE_SECONDS)
    finally:
        second.kill()
        second.wait()


def redo_killed(processes: Processes, random: Random) -> str:
    """Kill the redo process that leads; the other one takes over, and a third is started."""

    def leads() -> tuple[str, subprocess.Popen[bytes]] | None:
        holder = _leader(processes)
        return next(((holder, process) for process in processes.redo if holder.endswith(f"-{process.pid}")), None)

    former, process = until(leads, within=PATIENCE_SECONDS, what="a redo process that leads")
    process.kill()
    assert process.wait(PATIENCE_SECONDS) == -signal.SIGKILL
    after = until(
        lambda: _leader(processes) not in ("", former) and _leader(processes),
        within=PATIENCE_SECONDS,
        what="another that leads",
    )
    processes.keep_redo()
    return f"{former} is gone, {after} leads"


def daemon_killed(processes: Processes, random: Random) -> str:
    """Kill the daemon; its workers go on. Start another one."""
    ended = processes.daemon.stop(signal.SIGKILL)
    assert ended == -signal.SIGKILL, f"it ended with {ended}"
    processes.wait(random.uniform(0.0, 4.0))
    processes.daemon.start()
    return "ended by SIGKILL, another one leads"


def client_killed(processes: Processes, random: Random) -> str:
    """Kill the client at any moment of a submit, and start another one."""
    known = len(processes.submitted())
    until(lambda: len(processes.submitted()) > known, within=PATIENCE_SECONDS, what="a job of the client")
    processes.end_client()
    assert processes.client.returncode == -signal.SIGKILL
    processes.client = processes.start_client()
    return f"after {len(processes.submitted())} jobs"


def theft(processes: Processes, random: Random) -> str:
    """Delete a job that waits: it is lost, and the account must say so."""
    waits = select(tables.job.c.id).where(tables.job.c.state == states.REGISTERED).limit(1)

    def stolen() -> int | None:
        with processes.engine.begin() as connection:
            number = connection.execute(waits).scalar()
            gone = delete(tables.job).where(tables.job.c.id == number, tables.job.c.state == states.REGISTERED)
            return number if number in processes.submitted() and connection.execute(gone).rowcount else None

    return f"job {until(stolen, within=PATIENCE_SECONDS)} was deleted"


def unfenced(processes: Processes, random: Random) -> str:
    """Let a stopped worker write without the fence when it wakes up: it overlaps, and the account must say so."""
    one = until(lambda: _stopped_within_a_run(processes, random), within=PATIENCE_SECONDS)
    with _second_worker(processes, one):
        until(lambda: _outcome(processes, one.token) == states.LOST, within=PATIENCE_SECONDS)
        _until_done_again(processes, one)
    processes.unfenced.touch()
    one.process.resume()
    until(
        lambda: one.token in {effect.token for effect in processes.effects()},
        within=PATIENCE_SECONDS,
        what="an unfenced write",
    )
    processes.unfenced.unlink()
    return f"run {one.token} wrote without its lease"


KINDS: dict[str, Fault] = {
    "postgres-killed": postgres_killed,
    "database-restored": database_restored,
    "broker-killed": broker_killed,
    "worker-killed": worker_killed,
    "worker-stopped": worker_stopped,
    "redo-killed": redo_killed,
    "daemon-killed": daemon_killed,
    "client-killed": client_killed,
}
#: Kinds that do harm on purpose, to show that it is seen. Only by name, never by chance.
SABOTAGE: dict[str, Fault] = {"theft": theft, "unfenced": unfenced}


def _outcome(processes: Processes, token: int) -> str | None:
    """Return the outcome of a run; None while it goes on, or the database is away."""
    query = select(tables.run.c.outcome).where(tables.run.c.id == token)
    return processes.read(lambda connection: connection.execute(query).scalar())


def _leader(processes: Processes) -> str:
    return processes.read(lambda connection: connection.execute(select(tables.leader.c.holder)).scalar()) or ""


def _with_effect(processes: Processes, token: int) -> dict[int, set[int]]:
    """Return, for each job of a run, the runs of that job that have had an effect."""
    mine = select(tables.attempt.c.job_id).where(tables.attempt.c.run_id == token)
    query = select(tables.attempt.c.job_id, tables.attempt.c.run_id).where(tables.attempt.c.job_id.in_(mine))
    rows = processes.read(lambda connection: connection.execute(query).all()) or ()
    accepted = {effect.token for effect in processes.effects()}
    return {job: {row.run_id for row in rows if row.job_id == job and row.run_id in accepted} for job, _ in rows}


def _until_done_again(processes: Processes, one: Busy) -> None:
    """Wait until all jobs of a run that was lost are done by another one."""

    def again() -> bool:
        found = _with_effect(processes, one.token)
        return bool(found) and all(tokens - {one.token} for tokens in found.values())

    until(again, within=PATIENCE_SECONDS, what=f"another run of the jobs of run {one.token}")
