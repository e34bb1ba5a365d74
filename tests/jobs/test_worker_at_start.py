"""A worker of jobs that is started while its PostgreSQL is away waits for it, and a signal ends it. One that PostgreSQL
refuses ends at once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from osrdyne_jobs import DatabaseRefused, JobType, JobWorker
from osrdyne_jobs.database.engines import engine_for, migrate, refusal
from osrdyne_protocol.worker_environment import WorkerEnvironment
from testbed.postgres import Postgres
from testbed.waiting import PATIENCE_SECONDS, hears, until

PROGRAM = """
import os
from osrdyne_jobs import JobType, JobWorker
JobWorker(os.environ["JOBS_DATABASE"], {JobType("routes"): print}).run()
"""
#: Where nothing listens: the port of tcpmux.
NO_BROKER = "amqp://user:secret@127.0.0.1:1/%2F"
ENVIRONMENT = WorkerEnvironment("w", "42", "core", "core-req-42", "core-activity", NO_BROKER)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    with ExitStack() as started:

        def run(url: str) -> subprocess.Popen[bytes]:
            variables = {"PATH": os.environ["PATH"], "JOBS_DATABASE": url, **ENVIRONMENT.to_environ()}
            with (tmp_path / "log").open("w") as log:
                process = subprocess.Popen([sys.executable, "-c", PROGRAM], env=variables, stderr=log)
            started.callback(process.wait)
            started.callback(process.kill)
            return process

        yield run


@pytest.fixture
def postgres_with_roles(postgres: Postgres) -> Iterator[Postgres]:
    """A server with a user `jobs`, a user `late` without connections, and a database `closed` that no user may use."""
    for name in ("jobs", "closed"):
        postgres.create_database(name)
    postgres.psql("CREATE ROLE jobs LOGIN PASSWORD 'secret'")
    postgres.psql("CREATE ROLE late LOGIN PASSWORD 'secret' CONNECTION LIMIT 0")
    postgres.psql("REVOKE CONNECT ON DATABASE closed FROM PUBLIC")
    yield postgres
    for name in ("jobs", "closed"):
        postgres.drop_database(name)
    postgres.psql("DROP ROLE jobs, late")


def test_a_signal_ends_a_worker_that_waits_for_its_database(
    start: Callable[[str], subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    worker = start("postgresql://jobs:secret@127.0.0.1:1/jobs")
    until(lambda: "the database cannot be used; no job is begun here" in (tmp_path / "log").read_text())
    # A signal before the worker handles it would end the process with another status.
    until(lambda: hears(worker.pid))
    worker.send_signal(signal.SIGTERM)

    assert worker.wait(PATIENCE_SECONDS) == 0
    said = (tmp_path / "log").read_text()
    assert said.count("\n") == 1
    assert "secret" not in said


@pytest.mark.full
def test_once_its_database_is_there_a_worker_serves(
    private_postgres: Postgres, start: Callable[[str], subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    private_postgres.create_database("jobs")
    url = private_postgres.url("jobs")
    engine = engine_for(url)
    migrate(engine)
    engine.dispose()
    private_postgres.stop()
    start(url)
    until(lambda: "the database cannot be used" in (tmp_path / "log").read_text())
    private_postgres.start()

    until(lambda: "the broker cannot be used" in (tmp_path / "log").read_text())
    assert "the database can be used again" in (tmp_path / "log").read_text()


@pytest.mark.full
@pytest.mark.parametrize(
    ("user", "password", "database", "words"),
    [
        ("jobs", "wrong", "jobs", "password authentication failed"),
        ("unknown", "secret", "jobs", "password authentication failed"),
        ("jobs", "secret", "none", 'database "none" does not exist'),
        ("jobs", "secret", "closed", 'permission denied for database "closed"'),
    ],
)
def test_a_worker_that_postgresql_refuses_says_so_and_ends(
    postgres_with_roles: Postgres, user: str, password: str, database: str, words: str
) -> None:
    with pytest.raises(DatabaseRefused) as caught:
        JobWorker(postgres_with_roles.url(database, user, password), {JobType("routes"): print})

    assert f"127.0.0.1:{postgres_with_roles.port}/{database} refuses this worker" in str(caught.value)
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.full
def test_a_worker_waits_where_postgresql_has_no_connection_left(
    postgres_with_roles: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    worker = JobWorker(postgres_with_roles.url("jobs", "late", "secret"), {JobType("routes"): print})

    (record,) = caplog.records
    assert record.getMessage().startswith("the database cannot be used; no job is begun here")
    assert "too many connections" in record.__dict__["reason"]
    worker.close()


@pytest.mark.full
def test_a_worker_that_is_refused_once_its_database_is_there_ends(
    private_postgres: Postgres, start: Callable[[str], subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    private_postgres.create_database("jobs")
    private_postgres.stop()
    worker = start(private_postgres.url("jobs", password="wrong"))
    until(lambda: "the database cannot be used" in (tmp_path / "log").read_text())
    private_postgres.start()

    assert worker.wait(PATIENCE_SECONDS) == 1
    assert "refuses this worker: " in (tmp_path / "log").read_text().splitlines()[-1]


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        ("connection to server failed: Connection refused\n\tIs the server running?", False),
        ("FATAL:  the database system is starting up", False),
        ("FATAL:  sorry, too many clients already", False),
        ('server certificate for "a" does not match host name "b"', False),
        ("fe_sendauth: no password supplied", True),
        ('FATAL:  no pg_hba.conf entry for host "10.0.0.1", user "jobs", database "jobs", no encryption', True),
        ("last host: Connection refused\n- host: 'a': FATAL:  password authentication failed for user \"jobs\"", True),
        ("FATAL:  no such database: jobs", True),
    ],
)
def test_what_postgresql_says_distinguishes_a_refusal_from_an_outage(said: str, refused: bool) -> None:
    found = refusal(OperationalError("", None, Exception(said)))

    assert (found is not None) is refused
    assert found is None or "Connection refused" not in found
