"""Everything that `make demo-jobs` runs on: a broker, a daemon with its workers, redo processes, a database."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

import psutil
from sqlalchemy import Engine, select

from examples.airports import jobs_results
from osrdyne_jobs import engine_for, migrate
from osrdyne_jobs.database import tables
from osrdyne_jobs.database.engines import now, reading
from osrdyne_protocol.worker_environment import WORKER_ID
from testbed import postgres
from testbed.broker import DEMO_VERSION, Broker
from testbed.pool import DaemonProcess, Pool

ROOT = Path(__file__).parents[2]
WORKER = [sys.executable, "-m", "examples.airports.jobs_worker"]
REDO = [sys.executable, "-m", "examples.airports.jobs_redo"]
POOL = "airports"
#: Seconds after which the job of a killed worker is taken over.
LEASE_SECONDS = 15.0
#: Seconds without a job after which a worker is stopped, in two steps.
UNBIND_DELAY_SECONDS, STOP_DELAY_SECONDS = 12.0, 3.0
#: How many redo processes run: one leads, the others stand by.
REDO_PROCESSES = 2


class Rig:
    """Use it with `rig`."""

    def __init__(self, stack: ExitStack, directory: Path, database: str, seconds: float) -> None:
        """Start all. `seconds`: how long a job takes at least."""
        self._stack = stack
        self._directory = directory
        self._redo: list[subprocess.Popen[bytes]] = []
        #: The start of the broker after a kill, which takes seconds, while all others go on.
        self._starting: Future[None] | None = None
        self._database = database
        self.engine: Engine = engine_for(database)
        stack.callback(self.engine.dispose)
        migrate(self.engine)
        jobs_results.make(self.engine)
        self.broker = stack.enter_context(Broker(DEMO_VERSION))
        self._starts = stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="broker"))
        self.broker.management.add_vhost(POOL, self.broker.admin)
        self.pool = Pool.on(
            self.broker, POOL, name=POOL, unbind_delay=UNBIND_DELAY_SECONDS, stop_delay=STOP_DELAY_SECONDS
        )
        environment = {
            "JOBS_DATABASE": database,
            "JOBS_LEASE": str(LEASE_SECONDS),
            "JOBS_SECONDS": str(seconds),
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }
        self._daemon = DaemonProcess.of(self.pool, directory / "daemon", worker=WORKER, environment=environment)
        stack.callback(self._daemon.close)
        self._daemon.start()
        stack.callback(self._end_redo)
        self.keep_running()

    # --- redo processes -----------------------------------------------------------------------------------------

    def keep_running(self) -> None:
        """Start redo processes in place of those that have ended. Raises BrokerFailed of a start after a kill."""
        if self._starting is not None and self._starting.done():
            self._starting.result()
        self._redo = [process for process in self._redo if process.poll() is None]
        while len(self._redo) < REDO_PROCESSES:
            variables = {"JOBS_DATABASE": self._database, "AMQP_URI": self.pool.client_uri, "JOBS_POOL": POOL}
            with (self._directory / "redo.log").open("ab") as log:
                self._redo.append(
                    subprocess.Popen(
                        REDO, cwd=ROOT, env={**os.environ, **variables}, stdin=subprocess.DEVNULL, stderr=log
                    )
                )

    def _end_redo(self) -> None:
        for process in self._redo:
            process.kill()
            process.wait()

    # --- kills --------------------------------------------------------------------------------------------------

    def kill(self, what: str, random: Random) -> str | None:
        """Kill a worker that has a job, the broker, or the redo process that leads; return which one.

        Returns None where there is no such process now.
        """
        kills = {"worker": self._kill_worker, "broker": self._kill_broker, "redo": self._kill_redo}
        return kills[what](random)

    def _kill_worker(self, random: Random) -> str | None:
        locked = tables.lock.join(tables.run, tables.run.c.id == tables.lock.c.run_id)
        query = select(tables.run.c.worker, tables.lock.c.resource).select_from(locked)
        with reading(self.engine) as connection:
            found = connection.execute(query.where(tables.lock.c.expires_at > now()).order_by(tables.lock.c.resource))
            busy = [(run.worker, run.resource) for run in found]
        processes = _workers(self._daemon.worker_pids())
        there = [(processes[worker], airport) for worker, airport in busy if worker in processes]
        if not there:
            return None
        process, airport = random.choice(there)
        process.kill()
        return f"the worker of {airport}"

    def _kill_broker(self, _: Random) -> str | None:
        if self._starting is not None and not self._starting.done():
            return None
        self.broker.kill()
        self._starting = self._starts.submit(self.broker.start)
        return "the broker"

    def _kill_redo(self, _: Random) -> str | None:
        with reading(self.engine) as connection:
            holder = connection.execute(select(tables.leader.c.holder)).scalar()
        for process in self._redo:
            if holder == f"redo-{process.pid}" and process.poll() is None:
                process.kill()
                process.wait()
                return "the redo process that leads"
        return None


def _workers(pids: list[int]) -> dict[str, psutil.Process]:
    """Return processes by their worker's id, without those that have ended meanwhile."""
    found = {}
    for pid in pids:
        try:
            process = psutil.Process(pid)
            found[process.environ()[WORKER_ID]] = process
        except (psutil.Error, KeyError):
            continue
    return found


@contextmanager
def rig(directory: Path, *, on_postgres: bool, seconds: float) -> Iterator[Rig]:
    """Start everything, with its files in a directory, and end it. Raises what the engines raise."""
    with ExitStack() as stack:
        if on_postgres:
            postgres.install()
            server = stack.enter_context(postgres.Postgres())
            server.create_database(POOL)
            database = server.url(POOL)
        else:
            database = f"sqlite:///{directory / 'jobs.sqlite'}"
        yield Rig(stack, directory, database, seconds)
