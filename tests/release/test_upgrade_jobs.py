"""Jobs come from the release before to this one, and back, while they are registered and done: each is done once."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import select

from osrdyne_jobs import states
from osrdyne_jobs.database.engines import engine_for, reading
from osrdyne_jobs.database.tables import job
from testbed.postgres import Postgres
from testbed.waiting import PATIENCE_SECONDS, until
from tests.conftest import Vhost
from tests.jobs.conftest import postgres
from tests.release.live_pool import LATEST_SECONDS, LivePool, live_pool
from tests.release.two_versions import KEYS, Answers, Caller, Version

__all__ = ["postgres"]

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]

#: Writes into a file of the job's which process did it, and of which environment. A job that is done again fails.
WORKER = """
import os, sys
from pathlib import Path
from osrdyne_jobs import JobType, JobWorker, engine_from_environment

def do(run):
    made = Path(os.environ["DONE"], f".{run.token}")
    made.write_text(f"{os.getpid()} {sys.prefix}")
    os.link(made, Path(os.environ["DONE"], str(run.job)))

JobWorker(engine_from_environment(), {JobType("noted", payload=dict[str, int]): do}).run()
"""
#: Imports, and a client like that of osrdyne, whose `call` registers a job and waits until it is done.
#: The jobs of one key of each program are not cast: redo finds them.
JOB_CLIENT = """
from pathlib import Path
from types import SimpleNamespace
from osrdyne_client import Client
from osrdyne_jobs import JobClient, JobType, engine_from_environment

class Jobs:
    def __enter__(self):
        self.client = Client(os.environ["AMQP_URI"], "core").__enter__()
        types, self.engine = [JobType("noted", payload=dict[str, int])], engine_from_environment()
        self.casting = JobClient(self.engine, types, self.client, cast_after=2)
        self.silent = JobClient(self.engine, types, cast_after=0.1)
        return self

    def __exit__(self, *raised):
        self.client.__exit__(*raised)
        self.engine.dispose()

    def call(self, key, body, timeout):
        jobs = self.silent if key.endswith("-0") else self.casting
        number, until = jobs.submit("noted", key, {}).id, time.monotonic() + timeout
        while not (done := self.done(number)):
            assert time.monotonic() < until, "not done"
            time.sleep(0.02)
        return SimpleNamespace(body=done)

    def done(self, number):
        file = Path(os.environ["DONE"], str(number))
        return file.read_bytes() if file.exists() else b""
"""
#: A pace that leaves this machine enough to start workers that load SQLAlchemy.
CALLER = Caller(JOB_CLIENT, "Jobs()", pause=0.25)
ASK = f"import os, sys, time\n{JOB_CLIENT}\nwith Jobs() as jobs:\n    jobs.call(sys.argv[1], b'', 60)\n"


@dataclass
class LiveJobs:
    """A pool with jobs, their database, and redo."""

    pool: LivePool
    redo: subprocess.Popen[bytes] | None = None

    def migrate(self, version: Version) -> None:
        """Make the tables of a version, as their owner."""
        command = [version.environment.program("osrdyne"), "jobs", "migrate", "--database-file", "owner.address"]
        subprocess.run(command, cwd=self.pool.folder, env=self.pool.variables, check=True)

    def exchange_redo(self, version: Version) -> None:
        """End redo as a service manager does, and start one of a version."""
        self.end_redo()
        ready = self.pool.folder / "ready"
        ready.unlink(missing_ok=True)
        command = [version.environment.program("osrdyne"), "jobs", "redo", "--settings", "settings.toml"]
        command += ["--ready-file", str(ready)]
        with (self.pool.folder / "redo.log").open("ab") as log:
            self.redo = redo = subprocess.Popen(
                command, cwd=self.pool.folder, env=self.pool.variables, stdout=log, stderr=log
            )
        until(lambda: ready.exists() or redo.poll() is not None, what="a scan of redo")
        assert redo.poll() is None, (self.pool.folder / "redo.log").read_text()

    def end_redo(self) -> None:
        if self.redo is not None:
            self.redo.send_signal(signal.SIGTERM)
            try:
                assert self.redo.wait(timeout=PATIENCE_SECONDS) == 0
            finally:
                self.redo.kill()
                self.redo.wait()


def not_done_once(address: str) -> list[tuple[int, str, int]]:
    """Return id, state and attempts of the jobs of a database that were not done at their first attempt."""
    engine = engine_for(address)
    query = select(job.c.id, job.c.state, job.c.attempts)
    with reading(engine) as connection:
        rows = [tuple(row) for row in connection.execute(query)]
    engine.dispose()
    assert rows
    return [row for row in rows if row[1:] != (states.DONE, 1)]


def make_database(kind: str, request: pytest.FixtureRequest, folder: Path, version: Version) -> None:
    """Write the addresses of an empty database that a version makes: that of its owner, and that of programs."""
    if kind == "sqlite":
        for name in ("owner.address", "jobs.address"):
            (folder / name).write_text(f"sqlite:///{folder}/jobs.db\n")
        return
    server: Postgres = request.getfixturevalue("postgres")
    (folder / "admin.address").write_text(server.url("postgres"))
    (folder / "owner.address").write_text(server.url("core_jobs", "owner", "one secret"))
    (folder / "jobs.address").write_text(server.url("core_jobs", "programs", "another secret"))
    command = [version.environment.program("osrdyne"), "jobs", "prepare-database", "--admin-file=admin.address"]
    command += ["--owner-file=owner.address", "--database-file=jobs.address"]
    subprocess.run(command, cwd=folder, check=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def jobs(request: pytest.FixtureRequest, vhost: Vhost, tmp_path: Path, before: Version) -> Iterator[LiveJobs]:
    make_database(request.param, request, tmp_path, before)
    (done := tmp_path / "done").mkdir()
    with live_pool(vhost, tmp_path, WORKER, LivePool) as pool:
        own = {"OSRDYNE_JOBS_DATABASE_FILE": str(tmp_path / "jobs.address"), "DONE": str(done)}
        pool.environment = own
        pool.variables |= {**own, "OSRDYNE_CLIENT_URI": vhost.amqp_uri()}
        # A worker of 0.1.0 that ends may drop the request of a job: redo finds the job after these seconds, at most.
        pool.pool, pool.ask = {"jobs": {"redo": {"interval": 0.5, "pause": 2}}}, ASK
        live = LiveJobs(pool)
        yield live
        live.end_redo()


def test_jobs_are_upgraded_and_downgraded_under_load_and_each_is_done_once(
    jobs: LiveJobs, before: Version, after: Version
) -> None:
    pool = jobs.pool
    pool.settings(before)
    pool.declare(before)
    jobs.migrate(before)
    jobs.exchange_redo(before)
    pool.exchange_daemon(before)
    with ExitStack() as callers:

        def called(version: Version, name: str) -> Answers:
            return callers.enter_context(CALLER.called(version, pool.folder, pool.variables, name))

        answers = [called(before, "first")]
        # To this version: the tables come first, and programs of the release before start on them, too
        pool.declare(after)
        jobs.migrate(after)
        answers.append(called(before, "second"))
        jobs.exchange_redo(after)
        answers.append(called(after, "third"))
        pool.settings(after)
        pool.exchange_daemon(after)
        until(pool.answered_by(after), what="jobs that new workers did")
        # And back
        pool.settings(before)
        pool.exchange_daemon(before)
        until(pool.answered_by(before), what="jobs that old workers did")
        jobs.exchange_redo(before)
        jobs.migrate(before)
        answers.append(called(before, "fourth"))

    places = [version.environment.place for version in (before, after, before)]
    for expected, asked in zip((places, places, places, places[2:]), answers, strict=True):
        assert max(seconds for *_, seconds in asked.lines) < LATEST_SECONDS
        kinds = {key: [Path(worker.split()[1]) for worker in seen] for key, seen in asked.workers().items()}
        assert kinds == dict.fromkeys(kinds, expected)
        assert len(kinds) == KEYS
    assert not_done_once((pool.folder / "jobs.address").read_text().strip()) == []
