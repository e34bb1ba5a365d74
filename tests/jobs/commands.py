"""Runs `osrdyne jobs` in a test, on the test's database and with the job types of this module."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from pydantic import BaseModel
from sqlalchemy import Engine

from osrdyne_jobs import JobClient, JobType
from osrdyne_jobs.database.engines import engine_for, migrate
from osrdyne_jobs.store import administration, running
from testbed.command_line import CommandResult, osrdyne


class Region(BaseModel):
    """A payload with a field that can be wrong."""

    year: int


PLAIN = JobType("plain", max_attempts=1)
REGION = JobType("region", payload=Region, coalesce=True)
TYPES = [PLAIN, REGION]
TYPES_AT = f"{__name__}:TYPES"


class Jobs:
    """A database with the tables of jobs, and the commands that use it."""

    def __init__(self, url: str, engine: Engine) -> None:
        self.url, self.engine = url, engine
        self.client = JobClient(engine, TYPES)

    def __call__(
        self, *words: str | bytes, stdin: bytes = b"", variables: Mapping[str, str] | None = None
    ) -> CommandResult:
        """Run `osrdyne jobs WORDS` on this database."""
        environment = {"OSRDYNE_JOBS_DATABASE": self.url, "OSRDYNE_JOBS_TYPES": TYPES_AT, **(variables or {})}
        return osrdyne("jobs", *words, stdin=stdin, variables=environment)

    def json(self, *words: str | bytes, code: int = 0, **options: Any) -> Any:
        """Run `osrdyne jobs WORDS --json`, and return the document that it prints."""
        done = self(*words, "--json", **options)
        assert done.code == code, done
        return json.loads(done.out)

    def fail(self, number: int) -> None:
        """Let a worker begin a job and fail."""
        with self.engine.begin() as connection:
            job = administration.get(connection, number)
            begun = running.begin(connection, type=job.type, resource=job.resource, worker="w-1", lease=60.0)
            assert begun is not None
            running.finish(connection, begun.run_lock, "failed", "it is \x1b[31mbroken", "Traceback:\n  at\x1b[31m x")

    def state(self, number: int) -> str:
        return self.client.get(number).state


@pytest.fixture
def jobs(database_url: str) -> Iterator[Jobs]:
    engine = engine_for(database_url)
    migrate(engine)
    yield Jobs(database_url, engine)
    engine.dispose()
