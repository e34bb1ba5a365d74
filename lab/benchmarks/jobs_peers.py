"""Jobs submitted and done a second by eight workers: ours beside Celery and Procrastinate, on one PostgreSQL.

Eight resources, a worker process for each, and jobs that do nothing. All sides keep the same promise: a job is in the
database before `submit` returns, jobs of a resource run one after the other, and the job of a dead worker is done
again. Procrastinate has that by `lock`. For Celery it is written by hand (`sides/jobs_celery.py`), with a queue for
each worker.

In a turn, one client submits all jobs while the workers of its side are stopped (SIGSTOP). Then they go on, and the
time until the last job is done counts.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import import_module

import psycopg

from benchmarks import rig as rigs
from benchmarks.ratios import Row, Target, compared
from benchmarks.rig import Rig, Side
from benchmarks.sides import jobs_ours
from osrdyne_protocol.worker_environment import WorkerEnvironment
from testbed.peer import make_request_queue
from testbed.pool import Pool
from testbed.postgres import Postgres
from testbed.waiting import until

RESOURCES = [f"resource-{number}" for number in range(8)]
#: Jobs of one turn.
JOBS, QUICK_JOBS = 800, 80
AT_LEAST = Target(1.0)
CELERY, PROCRASTINATE = "Celery, by hand", "Procrastinate"


@dataclass
class Runner:
    """One way to have jobs done: its workers, and what its client does."""

    name: str
    workers: list[Side]
    submit: Callable[[str], object]
    #: How many jobs are done, as an SQL query, and the database.
    count: str
    database: psycopg.Connection[tuple[int]]
    submits: list[float] = field(default_factory=list)
    done: list[float] = field(default_factory=list)

    def pause(self) -> None:
        for worker in self.workers:
            worker.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        for worker in self.workers:
            worker.process.send_signal(signal.SIGCONT)

    def number_done(self) -> int:
        row = self.database.execute(self.count).fetchone()
        assert row is not None
        return row[0]

    def turn(self, jobs: int) -> tuple[float, float]:
        """Submit jobs, have them done, and return both as jobs a second."""
        self.pause()
        before, began = self.number_done(), time.perf_counter()
        for number in range(jobs):
            self.submit(RESOURCES[number % len(RESOURCES)])
        submitted = time.perf_counter()
        self.resume()
        until(lambda: self.number_done() == before + jobs, every=0.02, what=f"jobs that {self.name} does")
        ended = time.perf_counter()
        return jobs / (submitted - began), jobs / (ended - submitted)


def measure(rig: Rig) -> list[Row]:
    """Return two rows for each peer."""
    jobs = QUICK_JOBS if rig.quick else JOBS
    with rig.pool() as pool, Postgres() as server, ExitStack() as stack:
        runners = {runner.name: runner for runner in _runners(pool, server, stack)}
        for runner in runners.values():
            runner.turn(len(RESOURCES))
        for done, name in enumerate(rigs.in_turns(rig.rounds, list(runners))):
            if done % len(runners) == 0:
                rig.progress(f"jobs: round {done // len(runners) + 1} of {rig.rounds}")
            submits, ended = runners[name].turn(jobs)
            runners[name].submits.append(submits)
            runners[name].done.append(ended)
        ours = runners["ours"]
        rows = []
        for peer in (runners[CELERY], runners[PROCRASTINATE]):
            rows += [
                compared("jobs submitted, one client", "1/s", ours.submits, peer.submits, peer.name),
                compared("jobs done, eight workers", "1/s", ours.done, peer.done, peer.name, AT_LEAST),
            ]
        return rows


def _runners(pool: Pool, server: Postgres, stack: ExitStack) -> list[Runner]:
    broker = rigs.administrator(pool)
    for resource in RESOURCES:
        asyncio.run(make_request_queue(pool, resource))
    runners = []
    for name, module, done in (
        ("ours", "jobs_ours", "SELECT count(*) FROM osrdyne_job WHERE state = 'done'"),
        (CELERY, "jobs_celery", "SELECT count(*) FROM job WHERE state = 'done'"),
        (PROCRASTINATE, "jobs_procrastinate", "SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'"),
    ):
        server.create_database(module)
        database = server.url(module).replace("postgresql+psycopg", "postgresql")
        side = import_module(f"benchmarks.sides.{module}")
        submit = stack.enter_context(side.submitting(jobs_ours.Places(database, broker, pool.names.pool)))
        environment = {jobs_ours.DATABASE: database}
        workers = [
            stack.enter_context(Side(module, broker, {**environment, **_ours(pool, resource)}, resource=resource))
            for resource in RESOURCES
        ]
        connection = stack.enter_context(psycopg.connect(database, autocommit=True))
        runners.append(Runner(name, workers, submit, done, connection))
    return runners


def _ours(pool: Pool, resource: str) -> dict[str, str]:
    """The environment in which the daemon starts a worker."""
    return WorkerEnvironment(
        id=f"bench-{resource}",
        key=resource,
        pool=pool.names.pool,
        requests_queue=pool.names.request_queue(resource),
        activity_exchange=pool.names.activity_exchange,
        amqp_uri=rigs.administrator(pool),
    ).to_environ()
