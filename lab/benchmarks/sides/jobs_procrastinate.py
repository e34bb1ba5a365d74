"""A worker of Procrastinate; and what submits its jobs. The lock of a job is its resource."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import procrastinate

from benchmarks.sides.jobs_ours import DATABASE, Places


def application(connector: procrastinate.BaseConnector) -> procrastinate.App:
    """Return Procrastinate's object with the one task."""
    app = procrastinate.App(connector=connector)

    @app.task(name="echo", retry=5)
    def do(number: int) -> None:
        """Do nothing."""

    return app


@contextmanager
def submitting(places: Places) -> Iterator[Callable[[str], object]]:
    """Make the tables, and give what submits a job of a resource."""
    app = application(procrastinate.SyncPsycopgConnector(conninfo=places.database))
    with app.open():
        app.schema_manager.apply_schema()
        task = app.tasks["echo"]
        yield lambda resource: task.configure(lock=resource).defer(number=1)


if __name__ == "__main__":
    app = application(procrastinate.PsycopgConnector(conninfo=os.environ[DATABASE]))
    app.run_worker(concurrency=1)
