"""A worker of jobs that is started while its PostgreSQL is away waits for it, and a signal ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from osrdyne_jobs.database.engines import engine_for, migrate
from osrdyne_protocol.worker_environment import WorkerEnvironment
from testbed.postgres import Postgres
from testbed.waiting import PATIENCE, until

PROGRAM = """
import os
from osrdyne_jobs import JobType, JobWorker
JobWorker(os.environ["JOBS_DATABASE"], {JobType("routes"): print}).run()
"""
#: Where nothing listens: the port of tcpmux.
NOBODY = "amqp://user:secret@127.0.0.1:1/%2F"
ENVIRONMENT = WorkerEnvironment("w", "42", "core", "core-req-42", "core-activity", NOBODY)


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


def test_a_signal_ends_a_worker_that_waits_for_its_database(
    start: Callable[[str], subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    worker = start("postgresql://jobs:secret@127.0.0.1:1/jobs")
    until(lambda: "the database cannot be used; no job is begun here" in (tmp_path / "log").read_text())
    # It hears signals from then on where it waits.
    until(lambda: _hears(worker.pid))
    worker.send_signal(signal.SIGTERM)

    assert worker.wait(PATIENCE) == 0
    said = (tmp_path / "log").read_text()
    assert said.count("\n") == 1
    assert "secret" not in said


def _hears(process: int) -> bool:
    """Whether a process catches SIGTERM."""
    status = Path(f"/proc/{process}/status").read_text()
    caught = int(status.partition("SigCgt:")[2].split()[0], 16)
    return bool(caught >> (signal.SIGTERM - 1) & 1)


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
