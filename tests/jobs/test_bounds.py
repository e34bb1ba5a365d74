"""No call waits for a database without a bound: one that hangs, is locked, or does not say a word."""

from __future__ import annotations

import socket
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import psutil
import pytest
from sqlalchemy import text

from osrdyne_jobs import AsyncJobClient, InvalidJob, JobClient, JobType, NoAnswer, NotRegistered, engine_for, migrate
from osrdyne_jobs.database.engines import reading
from testbed.postgres import Postgres
from testbed.waiting import until

PLAIN = JobType("plain", payload=dict[str, int])
#: Seconds, where the test waits for them to pass.
SHORT_SECONDS = 1.0

WRITES: dict[str, Callable[[JobClient], object]] = {
    "submit": lambda jobs: jobs.submit("plain", "r", {}),
    "cancel": lambda jobs: jobs.cancel(1),
}
READS: dict[str, Callable[[JobClient], object]] = {"get": lambda jobs: jobs.get(1)}
ASYNC: dict[str, Callable[[AsyncJobClient], Awaitable[object]]] = {
    "submit": lambda jobs: jobs.submit("plain", "r", {}),
    "cancel": lambda jobs: jobs.cancel(1),
}


@pytest.fixture
def address(database_url: str) -> str:
    engine = engine_for(database_url)
    migrate(engine)
    JobClient(engine, [PLAIN]).submit("plain", "r", {})
    engine.dispose()
    return database_url


@contextmanager
def locked(address: str) -> Iterator[None]:
    """Have another program hold what all calls need."""
    if address.startswith("sqlite"):
        with closing(sqlite3.connect(address.removeprefix("sqlite:///"), isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            yield
            other.execute("ROLLBACK")
        return
    engine = engine_for(address)
    with engine.begin() as connection:
        connection.execute(text("LOCK TABLE osrdyne_job IN ACCESS EXCLUSIVE MODE"))
        yield
    engine.dispose()


@pytest.mark.parametrize("call", WRITES)
def test_a_call_on_a_locked_database_ends_with_an_error_and_the_next_one_works(address: str, call: str) -> None:
    with JobClient(address, [PLAIN], timeout=SHORT_SECONDS) as jobs:
        with locked(address), pytest.raises((NotRegistered, NoAnswer), match=r"locked|in time"):
            WRITES[call](jobs)
        jobs.submit("plain", "r", {})


@pytest.mark.parametrize("call", ASYNC)
async def test_a_call_of_an_asyncio_program_on_a_locked_database_ends_too(address: str, call: str) -> None:
    async with AsyncJobClient(address, [PLAIN], timeout=SHORT_SECONDS) as jobs:
        with locked(address), pytest.raises((NotRegistered, NoAnswer), match=r"locked|in time"):
            await ASYNC[call](jobs)
        await jobs.submit("plain", "r", {})


def test_a_call_waits_as_long_as_it_may_for_a_lock_that_is_given_back(address: str) -> None:
    with JobClient(address, [PLAIN]) as jobs:
        with locked(address):
            pass
        assert jobs.get(1).id == 1


@pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan"), True, "5"])
def test_a_bound_that_is_not_a_time_is_refused(tmp_path: Any, timeout: Any) -> None:
    with pytest.raises(InvalidJob, match="timeout"):
        JobClient(f"sqlite:///{tmp_path}/x", [PLAIN], timeout=timeout)


@pytest.mark.parametrize("call", [*WRITES, *READS])
def test_a_server_that_takes_a_connection_and_says_nothing_is_given_up(call: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"postgresql://u:secret@127.0.0.1:{silent.getsockname()[1]}/d"
        with (
            JobClient(address, [PLAIN], timeout=SHORT_SECONDS) as jobs,
            pytest.raises((NotRegistered, NoAnswer), match="timeout") as given_up,
        ):
            {**WRITES, **READS}[call](jobs)
    assert "secret" not in str(given_up.value)


@pytest.mark.full
@pytest.mark.parametrize("call", [*WRITES, *READS])
def test_a_server_that_stands_still_is_given_up_and_used_again_later(private_postgres: Postgres, call: str) -> None:
    address = prepared(private_postgres)
    with JobClient(address, [PLAIN], timeout=SHORT_SECONDS) as jobs:
        jobs.submit("plain", "r", {})
        with standing_still(private_postgres), pytest.raises((NotRegistered, NoAnswer), match="time"):
            {**WRITES, **READS}[call](jobs)
        assert jobs.get(1).id == 1


@pytest.mark.full
async def test_an_asyncio_program_gives_a_server_that_stands_still_up(private_postgres: Postgres) -> None:
    async with AsyncJobClient(prepared(private_postgres), [PLAIN], timeout=SHORT_SECONDS) as jobs:
        await jobs.submit("plain", "r", {})
        with standing_still(private_postgres), pytest.raises(NoAnswer, match="time"):
            await jobs.get(1)
        assert (await jobs.get(1)).id == 1


@pytest.mark.full
def test_postgresql_ends_what_waits_for_a_lock_when_its_client_gave_up(private_postgres: Postgres) -> None:
    address = prepared(private_postgres)
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    with JobClient(address, [PLAIN], timeout=SHORT_SECONDS) as jobs, locked(address):
        with pytest.raises(NotRegistered):
            jobs.submit("plain", "r", {})
        until(lambda: private_postgres.psql(waiting, "jobs") == "0", what="the end of the statement")
    engine = engine_for(address)
    with reading(engine) as connection:
        assert connection.execute(text("SELECT count(*) FROM osrdyne_job")).scalar() == 0
    engine.dispose()


def prepared(server: Postgres) -> str:
    server.start()
    server.create_database("jobs")
    address = server.url("jobs")
    engine = engine_for(address)
    migrate(engine)
    engine.dispose()
    return address


@contextmanager
def standing_still(server: Postgres) -> Iterator[None]:
    """Stop the server with all its processes, which keep their connections open."""
    processes = [process for process in psutil.process_iter() if str(server.directory) in " ".join(cwd(process))]
    assert processes
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in processes:
            process.resume()


def cwd(process: psutil.Process) -> list[str]:
    """Return where a server runs: its processes work in the folder of its data. Empty for this test's own."""
    try:
        return [process.cwd()] if process.name() == "postgres" else []
    except psutil.Error:
        return []
