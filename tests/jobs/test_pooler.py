"""Jobs over a real PgBouncer that gives each transaction another connection."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from osrdyne_jobs import (
    AsyncJobClient,
    JobClient,
    JobType,
    JobWorker,
    NotRegistered,
    Run,
    engine_for,
    messages,
    migrate,
)
from osrdyne_jobs.store import administration
from osrdyne_worker import Request
from testbed.pgbouncer import PgBouncer
from testbed.postgres import Postgres

pytestmark = pytest.mark.full

PLAIN = JobType("plain", payload=dict[str, int])
THREADS, EACH = 8, 50


@pytest.fixture(scope="module")
def pooler(postgres: Postgres) -> Iterator[PgBouncer]:
    with PgBouncer(postgres) as made:
        yield made


@pytest.fixture
def database(postgres: Postgres) -> Iterator[str]:
    name = f"test_{secrets.token_hex(6)}"
    postgres.create_database(name)
    yield name
    postgres.drop_database(name)


def test_many_clients_share_few_connections_and_a_worker_does_their_jobs(pooler: PgBouncer, database: str) -> None:
    address = pooler.url(database, "?pooler=true")
    engine = engine_for(address)
    migrate(engine)
    with JobClient(address, [PLAIN]) as jobs, ThreadPoolExecutor(THREADS) as threads:
        made = list(threads.map(lambda n: jobs.submit("plain", "r", {"n": n}).id, range(THREADS * EACH)))
    assert len(set(made)) == THREADS * EACH
    seen: list[int] = []

    def handler(run: Run) -> None:
        with run.transaction():
            seen.append(run.job)

    worker = JobWorker(engine, {PLAIN: handler})
    worker.handle(Request("r", messages.encode("plain", made[0]), {}, None, False, None))
    worker.close()
    assert seen == sorted(made)
    with engine.connect() as connection:
        assert administration.counts(connection)["done"] == THREADS * EACH
    engine.dispose()


async def test_an_asyncio_program_registers_over_it_too(pooler: PgBouncer, database: str) -> None:
    engine = engine_for(pooler.url(database, "?pooler=true"))
    migrate(engine)
    engine.dispose()
    async with AsyncJobClient(pooler.url(database, "?pooler=true"), [PLAIN]) as jobs:
        for n in range(EACH):
            assert (await jobs.submit("plain", "r", {"n": n})).id == n + 1


def test_a_pooler_that_is_not_named_says_how_to_name_it(pooler: PgBouncer, database: str) -> None:
    with JobClient(pooler.url(database), [PLAIN]) as jobs, pytest.raises(NotRegistered, match="add pooler=true"):
        jobs.submit("plain", "r", {})
