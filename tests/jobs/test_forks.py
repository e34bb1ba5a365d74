"""Clients of jobs over a fork, on both databases: the fork has connections of its own, and the parent keeps its own."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from osrdyne_jobs import AsyncJobClient, JobClient, JobType, JobWorker
from osrdyne_jobs.database.engines import engine_for, migrate, reading
from osrdyne_jobs.store.administration import listed
from osrdyne_protocol.errors import OtherProcess
from testbed.forked import RaisedError, in_fork

ROUTES = JobType("routes", payload=dict[str, int])
EACH = 20


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    made = engine_for(database_url)
    migrate(made)
    yield made
    made.dispose()


def resources(engine: Engine) -> list[str]:
    with reading(engine) as connection:
        return sorted(job.resource for job in listed(connection))


def submit(jobs: JobClient, name: str) -> list[str]:
    """Register jobs, and return the resources that the database then has for their ids."""
    registered = [jobs.submit("routes", f"{name}-{number:02}", {"n": number}) for number in range(EACH)]
    return [jobs.get(job.id).resource for job in registered]


def named(*names: str) -> list[str]:
    return sorted(f"{name}-{number:02}" for name in names for number in range(EACH))


def test_forks_and_their_parent_register_jobs_at_once_and_each_has_its_own_answers(
    database_url: str, engine: Engine
) -> None:
    with JobClient(database_url, [ROUTES]) as jobs, ThreadPoolExecutor(2) as threads:
        assert submit(jobs, "before") == named("before")
        reading_end, writing_end = os.pipe()

        def child(name: str) -> list[str]:
            os.write(writing_end, b"1")
            return submit(jobs, name)

        forks = [threads.submit(in_fork, partial(child, name)) for name in ("one", "two")]
        # SQLite allows no transaction while a process is forked.
        for _ in forks:
            os.read(reading_end, 1)
        assert submit(jobs, "parent") == named("parent")
        os.close(reading_end)
        os.close(writing_end)
        assert [fork.result() for fork in forks] == [named("one"), named("two")]
        assert submit(jobs, "after") == named("after")
    assert resources(engine) == named("before", "one", "two", "parent", "after")


def test_a_fork_that_closes_or_forgets_its_client_takes_no_connection_from_its_parent(
    database_url: str, engine: Engine
) -> None:
    with JobClient(database_url, [ROUTES]) as jobs:
        submit(jobs, "before")

        def child() -> None:
            nonlocal jobs
            jobs.close()
            jobs.__exit__(None, None, None)
            del jobs
            gc.collect()

        assert in_fork(child) is None
        assert submit(jobs, "after") == named("after")


def test_a_job_of_a_fork_stays_when_the_parent_closes_the_database_meanwhile(database_url: str, engine: Engine) -> None:
    # As the last connection to a file of SQLite, it would delete the log that the fork writes to.
    engine.dispose()
    jobs = JobClient(database_url, [ROUTES])
    submit(jobs, "before")
    begun, closed = os.pipe(), os.pipe()

    def child() -> list[str]:
        submit(jobs, "early")
        os.write(begun[1], b"1")
        os.read(closed[0], 1)
        return submit(jobs, "late")

    with ThreadPoolExecutor(1) as threads:
        fork = threads.submit(in_fork, child)
        os.read(begun[0], 1)
        jobs.close()
        os.write(closed[1], b"1")
        assert fork.result() == named("late")
    for process in (*begun, *closed):
        os.close(process)
    assert resources(engine) == named("before", "early", "late")


def test_a_fork_while_another_thread_writes_is_served_or_hears_what_to_do(database_url: str, engine: Engine) -> None:
    jobs = JobClient(engine, [ROUTES])
    holds, end = threading.Event(), threading.Event()

    def write() -> None:
        with engine.begin() as connection:
            jobs.register(connection, "routes", "held", {})
            holds.set()
            end.wait()

    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(write)
        holds.wait()
        try:
            found = in_fork(lambda: submit(jobs, "fork"))
        finally:
            end.set()
        writing.result()
    if engine.dialect.name == "sqlite":
        assert isinstance(found, RaisedError)
        assert found.kind == "OtherProcess"
        assert "fork while no transaction is under way" in found.text
        assert resources(engine) == ["held"]
    else:
        assert found == named("fork")
        assert resources(engine) == sorted(["held", *named("fork")])
    assert submit(jobs, "parent") == named("parent")


class Caster:
    """Takes casts, and never ends them; in a fork it is that of another process."""

    def __init__(self) -> None:
        self.casts = 0
        self._process = os.getpid()

    def start_cast(self, key: str, body: bytes, *, timeout: float | None = None) -> Future[None]:
        if os.getpid() != self._process:
            raise OtherProcess
        self.casts += 1
        return Future()


def test_a_fork_waits_for_no_cast_of_its_parent_and_leaves_its_own_to_redo(database_url: str, engine: Engine) -> None:
    caster = Caster()
    jobs = JobClient(database_url, [ROUTES], caster)
    jobs.submit("routes", "parent", {})
    [held] = jobs._casts.waiting

    def child() -> tuple[str, int]:
        job = jobs.submit("routes", "fork", {})
        found = jobs.get(job.id).resource, len(jobs._casts.waiting)
        jobs.close()
        return found

    # Its lock was held when the process was forked: who asks for it in the fork waits for ever.
    with held._condition:
        assert in_fork(child) == ("fork", 0)
    held.set_result(None)
    jobs.close()
    assert resources(engine) == ["fork", "parent"]


def test_asyncio_clients_begin_again_in_a_fork_or_hear_what_to_do(database_url: str, engine: Engine) -> None:
    jobs = AsyncJobClient(database_url, [ROUTES])

    async def submit_one(name: str) -> str:
        job = await jobs.submit("routes", name, {})
        found = (await jobs.get(job.id)).resource
        assert found == name
        return found

    async def parent() -> Any:
        await submit_one("before")
        found = in_fork(lambda: asyncio.run(submit_one("fork")))
        await submit_one("after")
        await jobs.close()
        return found

    found = asyncio.run(parent())
    if engine.dialect.name == "sqlite":
        assert isinstance(found, RaisedError)
        assert found.kind == "OtherProcess"
        assert resources(engine) == ["after", "before"]
    else:
        assert found == "fork"
        assert resources(engine) == ["after", "before", "fork"]


def test_a_worker_that_was_made_before_a_fork_is_refused_there_and_its_end_does_not_hang(
    database_url: str, engine: Engine
) -> None:
    worker = JobWorker(engine, {ROUTES: lambda _: None})

    def child() -> str:
        try:
            worker.run()
        except OtherProcess as error:
            worker.close()
            return str(error)
        return "nothing"

    assert "this JobWorker was opened in process" in in_fork(child)
    worker.close()


def test_a_connection_that_was_in_use_during_a_fork_is_closed_when_it_comes_back(tmp_path: Path) -> None:
    file = tmp_path / "database.sqlite"
    engine = engine_for(f"sqlite:///{file}")
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT 1").scalar() == 1
        assert in_fork(lambda: None) is None
        assert opened(file)
    assert not opened(file)
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT 1").scalar() == 1
    assert opened(file), "no connection rests in the pool"
    engine.dispose()
    assert not opened(file)


def opened(file: Path) -> bool:
    """Return whether this process has the file open."""
    return any(descriptor.exists() and descriptor.samefile(file) for descriptor in Path("/proc/self/fd").iterdir())
