"""Registering jobs on both databases. The pool is a stand-in that takes casts, or refuses them."""

from __future__ import annotations

import asyncio
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, SecretStr
from sqlalchemy import Engine, text

from osrdyne_amqp.errors import BrokerUnreachable
from osrdyne_calls.closing import CLOSE_SECONDS
from osrdyne_client.errors import ClientClosed
from osrdyne_jobs import AsyncJobClient, InvalidJob, JobClient, JobType, NotRegistered, UnknownJob, async_engine_for
from osrdyne_jobs.client import MOST_CASTS
from osrdyne_jobs.database.engines import engine_for, migrate, reading
from osrdyne_jobs.errors import JobError, NoSchema
from osrdyne_jobs.job_types import MOST_PAYLOAD
from osrdyne_jobs.store.administration import listed
from osrdyne_jobs.store.records import Job
from testbed.in_time import in_time


class Region(BaseModel):
    year: int
    note: str = ""
    area: str = Field("", alias="Area")
    share: float = 1.0
    secret: SecretStr | None = None


PAYLOAD = '{"year":2013,"note":"a\\u0000b","Area":"é","share":1.0,"secret":null}'
ROUTES = JobType("routes", payload=Region, coalesce=True, max_attempts=7)


class Pool:
    """Takes casts as a client of a pool does."""

    def __init__(self) -> None:
        self.casts: list[tuple[str, bytes]] = []
        self.futures: list[Future[None]] = []
        #: What a cast ends in.
        self.outcome: Exception | None = None
        #: What a cast raises.
        self.error: Exception | None = None
        self.waits = False

    def start_cast(self, key: str, body: bytes, *, timeout: float | None = None) -> Future[None]:
        if self.error is not None:
            raise self.error
        self.casts.append((key, body))
        future: Future[None] = Future()
        self.futures.append(future)
        if self.outcome is not None:
            future.set_exception(self.outcome)
        elif not self.waits:
            future.set_result(None)
        return future


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    made = engine_for(database_url)
    migrate(made)
    yield made
    made.dispose()


@pytest.fixture
def pool() -> Pool:
    return Pool()


def all_jobs(engine: Engine) -> list[Job]:
    with reading(engine) as connection:
        return listed(connection)


def test_a_job_is_registered_as_its_type_says_and_then_cast(engine: Engine, pool: Pool) -> None:
    job = JobClient(engine, [ROUTES], pool).submit("routes", "region-7", Region(year=2013, note="a\0b", Area="é"))
    assert ROUTES.decode(PAYLOAD) == Region(year=2013, note="a\0b", Area="é")
    [found] = all_jobs(engine)
    assert (found.id, found.type, found.resource, found.state) == (job.id, "routes", "region-7", "registered")
    assert (found.payload, found.coalesce, found.max_attempts) == (PAYLOAD, True, 7)
    assert found.due_at > found.registered_at
    assert pool.casts == [("region-7", b'{"type":"routes","job":%d}' % job.id)]


async def test_asyncio_programs_register_jobs_too(engine: Engine, database_url: str, pool: Pool) -> None:
    async with AsyncJobClient(database_url, [ROUTES], pool) as jobs:
        registered = await asyncio.gather(*(jobs.submit("routes", f"r{n}", {"year": n}) for n in range(5)))
        assert (await jobs.get(registered[0].id)).resource == "r0"
        assert await jobs.cancel(registered[0].id)
        with pytest.raises(InvalidJob):
            await jobs.submit("routes", "r", {})
    assert sorted(job.resource for job in all_jobs(engine)) == [f"r{n}" for n in range(5)]
    assert len(pool.casts) == 5


@pytest.mark.parametrize(
    "kind, resource, payload, field, problem",
    [
        ("roads", "r", {"year": 1}, "type", "'roads' is unknown; known are: routes"),
        ("routes", "a\0b", {"year": 1}, "resource", "NUL"),
        ("routes", "x" * 256, {"year": 1}, "resource", "256 bytes"),
        ("routes", "\ud800", {"year": 1}, "resource", "UTF-8"),
        ("routes", "r", {}, "payload.year", "Field required"),
        ("routes", "r", {"year": "soon"}, "payload.year", "valid integer"),
        ("routes", "r", {"year": 1, "note": "x" * MOST_PAYLOAD}, "payload", f"a job takes {MOST_PAYLOAD}"),
        ("routes", "r", {"year": 1, "share": float("nan")}, "payload.share", "valid number"),
        ("routes", "r", {"year": 1, "secret": "s"}, "payload", "another value"),
        ("routes", "r", {"year": 1, "note": "\ud800"}, "payload", "JSON"),
        ("routes", "r", 7, "payload", "valid dictionary"),
    ],
)
def test_bad_input_is_refused_before_anything_is_registered_and_the_field_is_named(
    engine: Engine, pool: Pool, kind: str, resource: str, payload: Any, field: str, problem: str
) -> None:
    with pytest.raises(InvalidJob, match=problem) as refused:
        JobClient(engine, [ROUTES], pool).submit(kind, resource, payload)
    assert refused.value.field == field
    assert (all_jobs(engine), pool.casts) == ([], [])


@pytest.mark.parametrize("name", ["", "-a", "a b", "x" * 101, "é"])
def test_a_name_that_is_none_and_a_type_that_is_declared_twice_are_refused(name: str) -> None:
    with pytest.raises(InvalidJob, match="not a name of a type"):
        JobType(name)
    with pytest.raises(InvalidJob, match="at least 1"):
        JobType("a", max_attempts=0)
    with pytest.raises(InvalidJob, match="not a type that pydantic knows"):
        JobType("a", payload=object())
    with pytest.raises(InvalidJob, match="declared twice"):
        JobClient("sqlite://", [JobType("a"), JobType("a")])


@pytest.mark.parametrize("late", [True, False])
def test_a_job_is_registered_although_the_broker_is_away_and_that_is_logged_as_an_outage(
    engine: Engine, pool: Pool, caplog: pytest.LogCaptureFixture, late: bool
) -> None:
    jobs = JobClient(engine, [ROUTES], pool)
    if late:
        pool.outcome = BrokerUnreachable("nothing listens there")
    else:
        pool.error = ClientClosed()
    for _ in range(3):
        jobs.submit("routes", "r", {"year": 1})
    assert len(all_jobs(engine)) == 3
    pool.outcome = pool.error = None
    jobs.submit("routes", "r", {"year": 1})
    assert [record.getMessage().partition(" seconds=")[0].partition(" reason=")[0] for record in caplog.records] == [
        "the pool cannot be used; redo casts what is submitted here",
        "the pool can be used again",
    ]


def test_casts_that_wait_for_the_broker_are_bounded(engine: Engine, pool: Pool) -> None:
    jobs = JobClient(engine, [ROUTES], pool)
    pool.waits = True
    job = jobs.submit("routes", "r", {"year": 1})
    for _ in range(MOST_CASTS + 5):
        jobs.cast(job)
    assert len(pool.casts) == MOST_CASTS


def test_a_type_shows_the_schema_of_its_payload_and_is_a_key_whatever_that_is() -> None:
    assert ROUTES.schema()["required"] == ["year"]
    positive = JobType("positive", payload=Annotated[dict[str, int], Field(min_length=1, json_schema_extra={"a": [1]})])
    assert {positive: 1}[positive] == 1
    with pytest.raises(InvalidJob, match="at least 1 item"):
        positive.encode({})


def test_a_client_that_is_closed_lets_its_casts_reach_the_broker(engine: Engine, pool: Pool) -> None:
    jobs = JobClient(engine, [ROUTES], pool)
    pool.waits = True
    jobs.submit("routes", "r", {"year": 1})
    [cast] = pool.futures
    threading.Timer(0.2, cast.set_result, [None]).start()
    jobs.close()
    assert cast.done()


async def test_a_client_is_closed_in_time_whatever_becomes_of_its_casts(engine: Engine, pool: Pool) -> None:
    jobs = JobClient(engine, [ROUTES], pool)
    pool.waits = True
    jobs.submit("routes", "r", {"year": 1})
    await in_time(asyncio.to_thread(jobs.close), CLOSE_SECONDS)


def test_a_job_is_committed_with_the_callers_own_data_or_not_at_all(engine: Engine, pool: Pool) -> None:
    jobs = JobClient(engine, [ROUTES], pool)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE region (name VARCHAR(20))"))
    with engine.connect() as connection:
        jobs.register(connection, "routes", "r", {"year": 1})
        connection.execute(text("INSERT INTO region VALUES ('r')"))
        connection.rollback()
    assert all_jobs(engine) == []
    with engine.begin() as connection:
        job = jobs.register(connection, "routes", "r", {"year": 1})
        connection.execute(text("INSERT INTO region VALUES ('r')"))
        assert pool.casts == []
    jobs.cast(job)
    assert [job.id for job in all_jobs(engine)] == [job.id]
    assert len(pool.casts) == 1


async def test_the_same_within_an_asyncio_programs_transaction(engine: Engine, database_url: str, pool: Pool) -> None:
    own = async_engine_for(database_url)
    jobs = AsyncJobClient(own, [ROUTES], pool)
    async with own.connect() as connection:
        await jobs.register(connection, "routes", "r", {"year": 1})
        await connection.rollback()
    assert all_jobs(engine) == []
    async with own.begin() as connection:
        await jobs.register(connection, "routes", "r", {"year": 1})
    assert len(all_jobs(engine)) == 1
    await own.dispose()


def test_a_database_without_tables_or_that_is_away_is_the_callers_error_without_the_payload(
    database_url: str, tmp_path: Any
) -> None:
    jobs = JobClient(database_url, [ROUTES])
    with pytest.raises(NoSchema, match="migrate"):
        jobs.submit("routes", "r", {"year": 1})
    jobs.close()
    away = JobClient(f"sqlite:///{tmp_path}/none/of/these", [ROUTES])
    with pytest.raises(NotRegistered, match="did not take the job: unable to open") as refused:
        away.submit("routes", "r", {"year": 4711})
    assert "4711" not in str(refused.value)
    with pytest.raises(JobError, match="PostgreSQL or SQLite, not in mysql"):
        JobClient("mysql://a/b", [ROUTES])
    with pytest.raises(JobError, match="not a URL"):
        JobClient("jobs", [ROUTES])


async def test_an_asyncio_program_gets_the_error_of_missing_tables_too(database_url: str) -> None:
    async with AsyncJobClient(database_url, [ROUTES]) as jobs:
        with pytest.raises(NoSchema, match="migrate"):
            await jobs.submit("routes", "r", {"year": 1})


def test_no_traceback_shows_a_payload_or_a_password(engine: Engine) -> None:
    jobs = JobClient(engine, [ROUTES])
    jobs.submit("routes", "r", {"year": 1})
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE osrdyne_job"))
    with pytest.raises(NotRegistered) as refused:
        jobs.submit("routes", "r", {"year": int("4711"[::-1])})
    assert "1174" not in "".join(traceback.format_exception(refused.value))
    password = "p@ss:geheim"
    with pytest.raises(JobError) as wrong:
        JobClient(f"postgresql://u:{password}@host/db", [ROUTES])
    assert "geheim" not in "".join(traceback.format_exception(wrong.value))


@pytest.mark.parametrize("wrong", [0, -1, 2**63, 10**400, True, 1.0, "1", b"1", None, [1]])
async def test_a_value_that_cannot_be_the_id_of_a_job_is_refused(engine: Engine, database_url: str, wrong: Any) -> None:
    with JobClient(engine, [ROUTES]) as jobs:
        jobs.submit("routes", "LAX", {"year": 2013})
        for ask in (jobs.get, jobs.cancel):
            with pytest.raises(InvalidJob, match="id: "):
                ask(wrong)
    async with AsyncJobClient(database_url, [ROUTES]) as others:
        for begin in (others.get, others.cancel):
            with pytest.raises(InvalidJob, match="id: "):
                await begin(wrong)


def test_a_job_that_is_not_there_is_named(engine: Engine) -> None:
    with pytest.raises(UnknownJob, match="no job 5"):
        JobClient(engine, [ROUTES]).get(5)
