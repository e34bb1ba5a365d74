"""A call of a client of jobs that raised has registered and cast nothing, and holds no connection and no lock."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from osrdyne_jobs import InvalidJob, JobClient, JobType, JobWorker
from osrdyne_jobs.database.engines import engine_for, migrate, reading
from osrdyne_jobs.database.sqlite_queue import PlaceInQueue
from osrdyne_jobs.store.administration import listed
from testbed.waiting import until
from tests.jobs.test_client import Pool
from tests.jobs.test_sqlite_queue import holder, waiting

ROUTES = JobType("routes", payload=dict[str, Any])
NO_SECONDS: Any = (math.nan, math.inf, -math.inf, 1e9, 10**400, True, "5", None, [], timedelta(seconds=5))


def nested(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(depth):
        found = {"a": found}
    return found


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    made = engine_for(database_url)
    migrate(made)
    yield made
    made.dispose()


def registered(engine: Engine) -> list[tuple[str, str]]:
    with reading(engine) as connection:
        return [(job.resource, job.payload) for job in listed(connection)]


def held(engine: Engine) -> int:
    """Return how many connections are in use."""
    pool: Any = engine.pool
    return int(pool.checkedout())


BAD: list[dict[str, Any]] = [
    *({"type": kind} for kind in (None, 5, b"routes", ["routes"], "\ud800", "a\0b", "")),
    *({"resource": resource} for resource in (None, 5, ["r"], b"\xff", "\ud800", "a\0b", "x" * 256, memoryview(b"r"))),
    *({"payload": payload} for payload in (None, "text", 5, b"bytes", [1], {1: 2}, object())),
    *({"payload": {"a": value}} for value in (math.nan, math.inf, "\ud800", object(), 1j, nested(5000), "x" * 70_000)),
]


def test_bad_calls_register_and_cast_nothing_and_hold_no_connection(engine: Engine) -> None:
    pool = Pool()
    jobs = JobClient(engine, [ROUTES], pool)
    good: dict[str, Any] = {"type": "routes", "resource": "r", "payload": {"a": 1}}
    for given in BAD:
        with pytest.raises(InvalidJob):
            jobs.submit(**{**good, **given})
        with engine.connect() as connection, pytest.raises(InvalidJob):
            jobs.register(connection, **{**good, **given})
        assert held(engine) == 0, given
    for id in (None, "x", 2**70, math.nan, [], object()):  # noqa: A001 - the argument's name
        for ask in (jobs.get, jobs.cancel):
            with pytest.raises(Exception, match=r"."):
                ask(id)  # type: ignore[arg-type]
        assert held(engine) == 0, id
    assert (registered(engine), pool.casts) == ([], [])
    jobs.submit("routes", b"r", {"a": 1})  # type: ignore[arg-type]
    assert registered(engine) == [("r", '{"a":1}')]


@pytest.mark.parametrize("seconds", NO_SECONDS, ids=lambda value: str(value)[:20])
def test_times_that_no_database_can_count_with_are_refused(engine: Engine, seconds: Any) -> None:
    with pytest.raises(InvalidJob, match=r"cast_after: .* is not a number of seconds, up to"):
        JobClient(engine, [ROUTES], cast_after=seconds)
    with pytest.raises(InvalidJob, match=r"lease: .* is not a number of seconds, up to"):
        JobWorker(engine, {ROUTES: lambda _: None}, lease=seconds)
    assert held(engine) == 0


@pytest.mark.parametrize("given", [{"lease": 0}, {"lease": -1.0}, {"threads": 0}])
def test_a_worker_without_a_lease_or_a_thread_is_refused(engine: Engine, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidJob, match="give it more than 0"):
        JobWorker(engine, {ROUTES: lambda _: None}, **given)


def test_a_job_that_is_registered_is_returned_whatever_its_cast_raises(engine: Engine) -> None:
    pool = Pool()
    pool.error = RuntimeError("a caster that is not ours")
    job = JobClient(engine, [ROUTES], pool).submit("routes", "r", {"a": 1})
    assert job.resource == "r"
    assert len(registered(engine)) == 1


@pytest.mark.parametrize("late", [False, True])
def test_a_writer_that_is_interrupted_while_it_waits_for_its_turn_keeps_neither_lock_nor_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    file = tmp_path / "queue"
    queue = PlaceInQueue(str(file))
    files = len(os.listdir("/proc/self/fd"))
    with holder(file) as process:

        def interrupt(*_: Any) -> None:
            if late:  # the turn comes just then
                process.kill()
                until(lambda: not waiting(), what="the turn")
            raise KeyboardInterrupt

        monkeypatch.setattr("concurrent.futures.Future.result", interrupt)
        with pytest.raises(KeyboardInterrupt), queue.turn(60.0):
            pass
        process.kill()
    until(lambda: not waiting(), what="the end of the thread that waited")
    assert len(os.listdir("/proc/self/fd")) == files
    queue.close()
    with PlaceInQueue(str(file)).turn(0.0):
        assert waiting() == 0
