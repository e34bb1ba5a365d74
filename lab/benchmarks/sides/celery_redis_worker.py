"""A worker of Celery that echoes, with Redis as broker and result backend."""

from __future__ import annotations

import sys
import warnings

from celery import Celery
from celery.platforms import SecurityWarning
from celery.signals import worker_ready

from benchmarks.sides import turns


def application() -> Celery:
    """Return Celery's object, with its defaults."""
    return Celery("benchmark", broker=turns.uri(), backend=turns.uri())


def main() -> None:
    app = application()

    @app.task(name="echo")  # type: ignore[untyped-decorator]
    def echo(body: bytes) -> bytes:
        return body

    worker_ready.connect(ready)
    # That it runs as root.
    warnings.simplefilter("ignore", SecurityWarning)
    # Of its pools, this is the fastest one for an echo.
    quiet = ("--without-gossip", "--without-mingle", "--loglevel", "ERROR")
    app.worker_main(["--quiet", "worker", "--pool", "solo", "--queues", *turns.options()["endpoints"], *quiet])


def ready(**_: object) -> None:
    # Celery logs what is printed.
    print("ready", file=sys.__stdout__, flush=True)


if __name__ == "__main__":
    main()
