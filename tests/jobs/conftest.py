"""Fixtures of the jobs' tests: a PostgreSQL a run or a test, and an empty database a test on either engine."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.postgres import Postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """The run's shared server: do not stop it, and use databases of your own."""
    with Postgres() as server:
        yield server


@pytest.fixture
def private_postgres() -> Iterator[Postgres]:
    """A server of the test's own, which it may stop, kill and start again."""
    with Postgres() as own:
        yield own


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.full)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """URL for SQLAlchemy of an empty database of the test's own; the test runs once on each engine."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'database.sqlite'}"
        return
    # Asked for by its name here: as an argument, it would start for SQLite, too.
    server: Postgres = request.getfixturevalue("postgres")
    name = f"test_{secrets.token_hex(6)}"
    server.create_database(name)
    yield server.url(name)
    server.drop_database(name)
