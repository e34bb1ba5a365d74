"""Programs of jobs hear a signal and end while their PostgreSQL stands still, in the midst of what they ask it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

import steps
from osrdyne_jobs import JobClient, JobWorker, messages
from osrdyne_jobs.waiting import STOP_SECONDS
from osrdyne_worker import Request
from testbed.in_time import in_time
from testbed.pool import Pool
from testbed.postgres import Postgres
from testbed.waiting import hears, until_in_thread
from tests.broker.conftest import make_pool
from tests.jobs.test_bounds import PLAIN, prepared, standing_still
from tests.jobs.test_worker_at_start import ENVIRONMENT, PROGRAM

__all__ = ["make_pool"]
pytestmark = pytest.mark.full


class Program:
    """A program of jobs that has begun."""

    def __init__(self, words: list[str], log: Path, **variables: str) -> None:
        self.log = log
        with log.open("w") as stderr:
            self.process = subprocess.Popen(
                words, cwd=steps.ROOT, env={"PATH": os.environ["PATH"], **variables}, stderr=stderr, stdout=stderr
            )

    @property
    def runs(self) -> bool:
        """True; it has not ended."""
        assert self.process.poll() is None, self.log.read_text()
        return True

    def address(self) -> str | None:
        """Return where it serves, once it does."""
        assert self.runs
        lines = [json.loads(line) for line in self.log.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return next((str(line["address"]) for line in lines if "address" in line), None)

    def connections(self) -> int:
        return len(psutil.Process(self.process.pid).net_connections())

    async def ends(self) -> None:
        """Ask it to stop, and wait for its end."""
        self.process.send_signal(signal.SIGTERM)
        await in_time(until_in_thread(lambda: self.process.poll() is not None), STOP_SECONDS)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    with ExitStack() as started:

        def begin(*words: str, **variables: str) -> Program:
            program = list(words) if words[0] == sys.executable else [str(steps.BIN / "osrdyne"), *words]
            made = Program(program, tmp_path / "log", **variables)
            started.callback(made.process.wait)
            started.callback(made.process.kill)
            return made

        yield begin


def ask(url: str) -> None:
    with contextlib.suppress(OSError), urllib.request.urlopen(url) as answer:  # noqa: S310 - of this test's process
        answer.read()


def request_for(kind: str, job: int) -> Request:
    return Request("r", messages.encode(kind, job), {}, None, redelivered=False, deadline=None)


async def test_redo_ends_in_time(
    private_postgres: Postgres, start: Callable[..., Program], make_pool: Callable[..., Pool], tmp_path: Path
) -> None:
    pool, ready = make_pool(), tmp_path / "ready"
    redo = start(
        *("jobs", "redo", "--pool", pool.names.pool, "--ready-file", str(ready)),
        OSRDYNE_JOBS_DATABASE=prepared(private_postgres),
        OSRDYNE_CLIENT_URI=pool.client_uri,
    )
    await until_in_thread(lambda: redo.runs and ready.exists())
    with standing_still(private_postgres):
        await redo.ends()
    assert "ended while the database did not answer" in redo.log.read_text()


async def test_the_administration_ends_in_time_with_a_request_under_way(
    private_postgres: Postgres, start: Callable[..., Program]
) -> None:
    served = start("jobs", "serve", "--port", "0", "--json", OSRDYNE_JOBS_DATABASE=prepared(private_postgres))
    url = await until_in_thread(served.address)
    with standing_still(private_postgres):
        asking = asyncio.create_task(asyncio.to_thread(ask, f"{url}/v1/jobs"))
        await until_in_thread(lambda: served.connections() > 1)
        await served.ends()
    await asking


async def test_a_worker_closes_in_time_with_an_outcome_that_is_not_written(private_postgres: Postgres) -> None:
    address, began, goes_on = prepared(private_postgres), threading.Event(), threading.Event()

    def work(_: object) -> None:
        began.set()
        goes_on.wait()

    worker = JobWorker(address, {PLAIN: work})
    with JobClient(address, [PLAIN]) as jobs:
        job = jobs.submit("plain", "r", {})
        handling = asyncio.create_task(asyncio.to_thread(worker.handle, request_for("plain", job.id)))
        await asyncio.to_thread(began.wait)
        with standing_still(private_postgres):
            goes_on.set()
            await in_time(asyncio.to_thread(worker.close), 1.0)
        # It was not cut: its outcome is there, now that the database is.
        await until_in_thread(lambda: jobs.get(job.id).state == "done")
    await handling
    await asyncio.to_thread(worker.close, None)


async def test_a_worker_that_waits_for_its_database_ends_in_time(
    private_postgres: Postgres, tmp_path: Path, start: Callable[..., Program]
) -> None:
    private_postgres.start()
    with standing_still(private_postgres):
        variables = {"JOBS_DATABASE": private_postgres.url("postgres"), **ENVIRONMENT.to_environ()}
        worker = start(sys.executable, "-c", PROGRAM, **variables)
        await until_in_thread(lambda: worker.runs and "the database cannot be used" in worker.log.read_text())
        await until_in_thread(lambda: hears(worker.process.pid))
        await worker.ends()
