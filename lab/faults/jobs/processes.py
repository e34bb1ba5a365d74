"""All processes of a run: PostgreSQL, broker, daemon with workers, redo processes, a client."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psutil
from sqlalchemy import Connection, Engine, func, select
from sqlalchemy.exc import SQLAlchemyError

from faults.jobs import load
from faults.jobs.account import Effect, Job
from faults.jobs.worker import effect, metadata
from osrdyne_jobs import engine_for, migrate
from osrdyne_jobs.database import tables
from osrdyne_jobs.database.engines import now, reading
from osrdyne_protocol.worker_environment import WORKER_ID
from testbed import ROOT
from testbed.broker import Broker
from testbed.pool import DaemonProcess, Pool
from testbed.postgres import Postgres
from testbed.waiting import until

T = TypeVar("T")

WORKER, CLIENT = ([sys.executable, "-m", f"faults.jobs.{name}"] for name in ("worker", "client"))
NAME = "faults"


class HeartbeatPool(Pool):
    """A pool whose processes are soon given up by the broker when they stand still."""

    def uri(self, user: str) -> str:
        return f"{super().uri(user)}?heartbeat={load.HEARTBEAT_SECONDS:.0f}"


@dataclass(frozen=True, slots=True)
class Busy:
    """A run that goes on, and the process of its worker."""

    token: int
    type: str
    resource: str
    process: psutil.Process


class Processes:
    """Use it with `with`. What it starts lives in `directory`, and ends with it."""

    def __init__(self, version: str, directory: Path) -> None:
        self.directory = directory
        self._version = version
        self._stack = ExitStack()
        self._wait = threading.Event()
        self.redo: list[subprocess.Popen[bytes]] = []
        self.notes, self.journal = directory / "notes", directory / "journal"
        #: Between a back-up and its restore, by the monotonic clock: jobs that were asked for then are gone.
        self.forgotten: list[tuple[float, float]] = []
        #: While this file exists, workers write without the fence.
        self.unfenced = directory / "unfenced"

    def __enter__(self) -> Processes:
        with ExitStack() as stack:
            self.postgres = stack.enter_context(Postgres())
            self.postgres.create_database(NAME)
            self.database = self.postgres.url(NAME)
            self.engine: Engine = engine_for(self.database)
            stack.callback(self.engine.dispose)
            migrate(self.engine)
            metadata.create_all(self.engine)
            self.broker = stack.enter_context(Broker(self._version))
            self.broker.management.add_vhost(NAME, self.broker.admin)
            self.pool = HeartbeatPool.on(
                self.broker, NAME, name=NAME, unbind_delay=load.UNBIND_DELAY_SECONDS, stop_delay=load.STOP_DELAY_SECONDS
            )
            self.daemon = self._daemon()
            stack.callback(self.daemon.close)
            self.daemon.start()
            stack.callback(self._end_redo)
            self.keep_redo()
            self.client = self.start_client()
            stack.callback(self.end_client)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _daemon(self) -> DaemonProcess:
        environment = {
            load.DATABASE: self.database,
            load.NOTES: str(self.notes),
            load.UNFENCED: str(self.unfenced),
        }
        daemon = DaemonProcess.of(self.pool, self.directory / "daemon", worker=WORKER, environment=environment)
        daemon.settings["pool"]["jobs"] = {"redo": load.REDO}
        return daemon

    def start(self, command: list[str], log: str, **options: Any) -> subprocess.Popen[bytes]:
        """Start a process with what it logs in a file of this name."""
        with (self.directory / f"{log}.log").open("ab") as output:
            return subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output, **options)

    # --- redo -----------------------------------------------------------------------------------------------

    def keep_redo(self) -> None:
        """Start redo processes, as users do, in place of those that have ended."""
        self.redo = [process for process in self.redo if process.poll() is None]
        while len(self.redo) < load.REDO_PROCESSES:
            settings = ["--settings", str(self.daemon.directory / "settings.toml"), "--json"]
            variables = {"OSRDYNE_JOBS_DATABASE": self.database, "OSRDYNE_CLIENT_URI": self.pool.client_uri}
            command = [sys.executable, "-m", "osrdyne.cli", "jobs", "redo", *settings]
            environment = {**os.environ, **variables}
            self.redo.append(self.start(command, "redo", env=environment, stdin=subprocess.DEVNULL))

    def _end_redo(self) -> None:
        for process in self.redo:
            process.kill()
            process.wait()

    # --- client ---------------------------------------------------------------------------------------------

    def start_client(self) -> subprocess.Popen[bytes]:
        """Start the client that registers jobs."""
        variables = {
            load.DATABASE: self.database,
            load.URI: self.pool.client_uri,
            load.POOL: NAME,
            load.JOURNAL: str(self.journal),
        }
        return self.start(CLIENT, "client", env={**os.environ, **variables}, stdin=subprocess.PIPE)

    def stop_load(self) -> None:
        """Have no more jobs registered."""
        assert self.client.stdin is not None
        self.client.stdin.write(b"stop\n")
        self.client.stdin.flush()

    def end_client(self) -> None:
        self.client.kill()
        self.client.wait()
        assert self.client.stdin is not None
        self.client.stdin.close()

    def put_right(self) -> None:
        """Undo what a fault that failed may have left."""
        self.postgres.start()
        self.broker.start()
        if self.daemon.process is None or self.daemon.process.poll() is not None:
            self.daemon.start()
        self.keep_redo()
        if self.client.poll() is not None:
            self.client = self.start_client()

    # --- workers --------------------------------------------------------------------------------------------

    def busy(self) -> list[Busy]:
        """Return the runs that go on, of workers that run on this machine; empty where the database is away."""
        locked = tables.lock.join(tables.run, tables.run.c.id == tables.lock.c.run_id)
        query = select(tables.lock.c.run_id, tables.lock.c.type, tables.lock.c.resource, tables.run.c.worker)
        query = query.select_from(locked).where(tables.lock.c.expires_at > now())
        rows = self.read(lambda connection: connection.execute(query).all())
        workers = self.workers()
        return [Busy(*row[:3], workers[row.worker]) for row in rows or () if row.worker in workers]

    def workers(self) -> dict[str, psutil.Process]:
        """Return the processes of workers by their ids."""
        found = {}
        for pid in self.daemon.worker_pids():
            try:
                process = psutil.Process(pid)
                found[process.environ()[WORKER_ID]] = process
            except (psutil.Error, KeyError):
                continue  # it has ended
        return found

    def noted(self) -> list[tuple[str, int]]:
        """Return what the workers noted of their runs: what, and the token."""
        lines = self.notes.read_text().splitlines() if self.notes.exists() else []
        return [(word, int(token)) for word, token, _ in map(str.split, lines)]

    # --- database -------------------------------------------------------------------------------------------

    def read(self, query: Callable[[Connection], T]) -> T | None:
        """Return what a query finds, or None where the database is away."""
        try:
            with reading(self.engine) as connection:
                return query(connection)
        except SQLAlchemyError:
            return None

    def jobs(self) -> dict[int, Job]:
        columns = (tables.job.c.id, tables.job.c.state, tables.job.c.run_id)
        with reading(self.engine) as connection:
            return {row.id: Job(row.state, row.run_id) for row in connection.execute(select(*columns))}

    def effects(self) -> list[Effect]:
        columns = (effect.c[name] for name in Effect._fields)
        with reading(self.engine) as connection:
            return [Effect(*row) for row in connection.execute(select(*columns))]

    def outcomes(self) -> dict[int, str | None]:
        """Return the outcome of each run by its token; None where it goes on."""
        with reading(self.engine) as connection:
            return {row.id: row.outcome for row in connection.execute(select(tables.run.c.id, tables.run.c.outcome))}

    def submitted(self) -> dict[int, float]:
        """Return when the jobs were asked for that the client knows to be registered, without those of no back-up."""
        return {
            number: asked
            for number, asked in self._journal()
            if not any(begin <= asked <= end for begin, end in self.forgotten)
        }

    def newest_submitted(self) -> int:
        """Return the id of the job that the client noted last."""
        return self._journal()[-1][0]

    def _journal(self) -> list[tuple[int, float]]:
        lines = self.journal.read_text().splitlines() if self.journal.exists() else []
        return [(int(number), float(asked)) for number, asked in map(str.split, lines)]

    def say_restored(self) -> None:
        """Have the database give no id again."""
        command = [sys.executable, "-m", "osrdyne.cli", "jobs", "restored"]
        environment = {**os.environ, "OSRDYNE_JOBS_DATABASE": self.database}
        subprocess.run(command, env=environment, check=True, capture_output=True, stdin=subprocess.DEVNULL)

    # --- waiting --------------------------------------------------------------------------------------------

    def wait(self, seconds: float) -> None:
        """Let the load go on, or a fault last."""
        self._wait.wait(seconds)

    def until_recovered(self, *, within: float) -> None:
        """Wait until of each type and resource a job is done that was registered after now."""
        ended = self.client.poll() is not None or any(process.poll() is not None for process in self.redo)
        assert not ended, "a client or a redo process ended by itself"
        began = until(lambda: self.read(lambda connection: connection.execute(select(now())).scalar_one()))
        job = tables.job.c
        query = select(job.type, job.resource).where(job.registered_at > began, job.state == "done").distinct()

        def missing() -> set[tuple[str, str]]:
            done = self.read(lambda connection: connection.execute(query).all()) or ()
            return {(kind.name, at) for kind in load.TYPES for at in load.RESOURCES} - {
                (row[0], row[1]) for row in done
            }

        try:
            until(lambda: not missing(), within=within)
        except AssertionError:
            raise AssertionError(f"no new job is done of {sorted(missing())}") from None

    def until_done(self, *, within: float) -> None:
        """Wait until no job waits or runs."""
        waiting = select(func.count()).where(tables.job.c.state.in_(["registered", "running", "failed"]))
        until(lambda: self.read(lambda connection: connection.execute(waiting).scalar()) == 0, within=within)
