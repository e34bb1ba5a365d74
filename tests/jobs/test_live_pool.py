"""Jobs on a real pool: a real broker and daemon, which starts workers as processes, and a database of either kind."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from osrdyne_client import AsyncClient, Client
from osrdyne_jobs import AsyncJobClient, JobClient, JobWorker, Redo, RedoSettings, Run, messages, states
from osrdyne_jobs.database.engines import engine_for, migrate, reading
from osrdyne_jobs.store import administration
from osrdyne_worker import Request
from testbed.job_worker import SCRIPTED, TOGETHER
from testbed.pool import DaemonProcess, Pool
from testbed.waiting import PATIENCE_SECONDS, until
from testbed.workers import JOBS
from tests.broker.conftest import make_daemon, make_pool

__all__ = ["make_daemon", "make_pool"]

TYPES = [SCRIPTED, TOGETHER]


class Jobs:
    """A pool whose workers do jobs, a client of it, and redo."""

    def __init__(self, engine: Engine, pool: Pool, client: Client, daemon: DaemonProcess, runs: Path) -> None:
        self.engine, self.pool, self.client, self.daemon, self._runs = engine, pool, client, daemon, runs
        self.jobs = JobClient(engine, TYPES, client)

    def runs(self) -> list[list[str]]:
        """What the workers noted: word, type, resource, job, attempt, token, process."""
        return [line.split() for line in self._runs.read_text().splitlines()] if self._runs.exists() else []

    def words(self) -> list[str]:
        return [run[0] for run in self.runs()]

    def until(self, state: str, *numbers: int) -> None:
        def all_are() -> bool:
            with reading(self.engine) as connection:
                return all(administration.get(connection, number).state == state for number in numbers)

        until(all_are, what=f"jobs that are {state}")

    def attempts(self, number: int) -> list[str]:
        with reading(self.engine) as connection:
            return [str(attempt["outcome"]) for attempt in administration.attempts(connection, number)]


@pytest.fixture
def live(
    database_url: str,
    tmp_path: Path,
    make_pool: Callable[..., Pool],
    make_daemon: Callable[..., DaemonProcess],
) -> Iterator[Jobs]:
    engine = engine_for(database_url)
    migrate(engine)
    pool, runs = make_pool(), tmp_path / "runs"
    environment = {
        "JOBS_DATABASE": database_url,
        "JOBS_LEASE": "8",
        "JOBS_RUNS": str(runs),
    }
    daemon = make_daemon(pool, worker=JOBS, environment=environment)
    with Client(pool.client_uri, pool.names.pool) as client:
        yield Jobs(engine, pool, client, daemon, runs)
    engine.dispose()


@pytest.fixture
def redo(live: Jobs) -> Iterator[None]:
    stop = threading.Event()
    settings = RedoSettings(interval=0.2, pause=5.0, alive_interval=2.0)
    thread = threading.Thread(target=Redo(live.engine, live.client, settings, name="redo").run, args=(stop,))
    thread.start()
    yield
    stop.set()
    thread.join(PATIENCE_SECONDS)


def test_jobs_of_cold_resources_are_done_by_workers_that_start_for_them(live: Jobs) -> None:
    numbers = [live.jobs.submit("scripted", resource, {}).id for resource in ("a", "b", "a")]
    live.until(states.DONE, *numbers)
    ends = [(run[2], int(run[3])) for run in live.runs() if run[0] == "ends"]
    assert sorted(ends, key=lambda end: end[1]) == list(zip("aba", numbers, strict=True))


async def test_jobs_that_an_asyncio_program_registers_are_done(live: Jobs, database_url: str) -> None:
    async with (
        AsyncClient(live.pool.client_uri, live.pool.names.pool) as client,
        AsyncJobClient(database_url, TYPES, client) as jobs,
    ):
        registered = await asyncio.gather(*(jobs.submit("scripted", key, {}) for key in "ab"))
    live.until(states.DONE, *(job.id for job in registered))


def test_what_was_registered_without_a_cast_is_done_all_the_same(live: Jobs, redo: None) -> None:
    silent = JobClient(live.engine, TYPES, cast_after=0.5)
    numbers = [silent.submit("scripted", "a", {}).id for _ in range(3)]
    live.until(states.DONE, *numbers)
    assert live.words() == ["begins", "ends"] * 3


def test_a_job_whose_worker_died_is_done_by_the_next_worker(live: Jobs, redo: None) -> None:
    number = live.jobs.submit("scripted", "a", {"crashes": 1}).id
    live.until(states.DONE, number)
    assert live.attempts(number) == [states.LOST, states.DONE]
    first, second = (run for run in live.runs() if run[0] == "begins")
    assert int(second[5]) > int(first[5])
    assert first[6] != second[6]


def test_jobs_registered_while_one_runs_cause_one_more_run(live: Jobs) -> None:
    first = live.jobs.submit("together", "a", {"seconds": 2.0}).id
    until(lambda: live.words() == ["begins"])
    meanwhile = [live.jobs.submit("together", "a", {}).id for _ in range(10)]
    live.until(states.DONE, first, *meanwhile)
    assert live.words() == ["begins", "ends"] * 2


@pytest.mark.full
def test_a_worker_that_gets_sigterm_ends_its_job_and_leaves_the_next_one_to_another_worker(live: Jobs) -> None:
    first = live.jobs.submit("scripted", "a", {"until_stop": 1.0}).id
    until(lambda: live.words() == ["begins"])
    second = live.jobs.submit("scripted", "a", {}).id
    os.kill(int(live.runs()[0][6]), signal.SIGTERM)
    live.until(states.DONE, first, second)
    workers = [(int(run[3]), run[6]) for run in live.runs() if run[0] == "ends"]
    assert [job for job, _ in workers] == [first, second]
    assert workers[0][1] != workers[1][1]


@pytest.mark.full
def test_a_worker_that_slept_past_its_lease_is_fenced_off(live: Jobs, redo: None) -> None:
    number = live.jobs.submit("scripted", "a", {"seconds": 15.0}).id
    until(lambda: live.words() == ["begins"])
    asleep = int(live.runs()[0][6])
    os.kill(asleep, signal.SIGSTOP)
    # Another worker takes the job over
    until(lambda: live.attempts(number) == [states.LOST], what="the loss of the lease")
    done: list[Run] = []
    take_over(live, done)
    assert [job.attempt for job in done] == [2]
    # And the one that wakes up writes nothing, whether it has heard of it or not
    os.kill(asleep, signal.SIGCONT)
    until(lambda: {"hears", "refused"} & {*live.words()}, what="the end of the first run")
    assert live.attempts(number) == [states.LOST, states.DONE]
    assert "ends" not in live.words()


def take_over(live: Jobs, done: list[Run]) -> None:
    """Do what is due in this process, as a second worker does."""
    worker = JobWorker(live.engine, {SCRIPTED: done.append}, name="second")
    try:
        hint = Request("a", messages.encode("scripted", 1), {}, None, False, None)
        while not done:
            worker.handle(hint)
    finally:
        worker.close()
