"""A worker on our library that does jobs, and the client that submits them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from osrdyne_client import Client
from osrdyne_jobs import JobClient, JobType, JobWorker, Run, engine_for, migrate

#: Variable with the address of the database, which is a credential.
DATABASE = "BENCHMARK_DATABASE"
TYPE = JobType("echo", payload=dict[str, int])


@dataclass(frozen=True, slots=True)
class Places:
    """Where a client of any side submits: addresses of the database and the broker, and the name of the pool."""

    database: str
    broker: str
    pool: str


def do(run: Run) -> None:
    """Do nothing."""


@contextmanager
def submitting(places: Places) -> Iterator[Callable[[str], object]]:
    """Make the tables, and give a function that submits a job of a resource."""
    engine = engine_for(places.database)
    migrate(engine)
    with Client(places.broker, places.pool) as client, JobClient(engine, [TYPE], client) as jobs:
        yield lambda resource: jobs.submit("echo", resource, {"number": 1})
    engine.dispose()


if __name__ == "__main__":
    JobWorker(os.environ[DATABASE], {TYPE: do}).run()
