"""A worker of Celery that keeps the promises of our jobs, written by hand; and what submits its jobs.

A job is a row before it is sent. A run takes the lock of its resource with a lease in one transaction, and writes its
outcome and gives the lock back in another one. A message is acknowledged after that. The renewal of leases, and the
scan for jobs whose message was lost, are left out: both cost nothing here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from celery import Celery

from benchmarks.rig import URI_VARIABLE
from benchmarks.sides import turns
from benchmarks.sides.jobs_ours import DATABASE, Places

TABLES = """
CREATE TABLE job (
    id BIGSERIAL PRIMARY KEY, resource TEXT NOT NULL, payload TEXT NOT NULL, state TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0, registered_at TIMESTAMPTZ NOT NULL, finished_at TIMESTAMPTZ);
CREATE INDEX ON job (resource, id) WHERE state = 'registered';
CREATE TABLE job_lock (resource TEXT PRIMARY KEY, job BIGINT NOT NULL, expires_at TIMESTAMPTZ NOT NULL);
"""
REGISTER = "INSERT INTO job (resource, payload, state, registered_at) VALUES (%s, %s, 'registered', now()) RETURNING id"
LOCK = """
INSERT INTO job_lock VALUES (%s, %s, now() + interval '30 s') ON CONFLICT (resource)
DO UPDATE SET job = excluded.job, expires_at = excluded.expires_at WHERE job_lock.expires_at < now() RETURNING job
"""
BEGIN = "UPDATE job SET state = 'running', attempts = attempts + 1 WHERE id = %s AND state <> 'done' RETURNING payload"
UNLOCK = "DELETE FROM job_lock WHERE resource = %s AND job = %s RETURNING job"
FINISH = "UPDATE job SET state = 'done', finished_at = now() WHERE id = %s"


def application(broker: str) -> Celery:
    """Return Celery's object, with the settings that a job which must not be lost needs."""
    app = Celery("benchmark", broker=broker.replace("amqp://", "pyamqp://"))
    app.conf.update(
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_ignore_result=True,
        worker_prefetch_multiplier=1,
        broker_transport_options={"confirm_publish": True},
        task_default_queue_type="quorum",
        worker_detect_quorum_queues=True,
        broker_connection_retry_on_startup=True,
    )
    return app


@contextmanager
def submitting(places: Places) -> Iterator[Callable[[str], object]]:
    """Make the tables, and give what submits a job of a resource."""
    app = application(places.broker)
    with psycopg.connect(places.database, autocommit=True) as connection, app.connection_for_write() as sending:
        connection.execute(TABLES)

        def submit(resource: str) -> object:
            row = connection.execute(REGISTER, (resource, '{"number":1}')).fetchone()
            assert row is not None
            return app.send_task("echo", (row[0], resource), queue=f"celery-{resource}", connection=sending)

        yield submit


def work(app: Celery, connection: psycopg.Connection[Any], resource: str) -> None:
    """Do the jobs of one resource."""

    @app.task(name="echo", bind=True)  # type: ignore[untyped-decorator]
    def do(task: Any, job: int, resource: str) -> None:
        with connection.transaction():
            locked = connection.execute(LOCK, (resource, job)).fetchone()
            begun = locked and connection.execute(BEGIN, (job,)).fetchone()
        if not locked:
            raise task.retry(countdown=1)
        if begun:
            with connection.transaction():
                if connection.execute(UNLOCK, (resource, job)).fetchone():
                    connection.execute(FINISH, (job,))

    queue = f"celery-{resource}"
    quiet = ("--without-gossip", "--without-mingle", "--loglevel", "ERROR")
    app.worker_main(["worker", "--pool", "solo", "--queues", queue, "--hostname", f"{resource}@bench", *quiet])


if __name__ == "__main__":
    with psycopg.connect(os.environ[DATABASE], autocommit=True) as opened:
        work(application(os.environ[URI_VARIABLE]), opened, turns.options()["resource"])
