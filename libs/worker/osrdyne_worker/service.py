"""The worker library: write a handler, call `run`.

    from osrdyne_worker.service import Request, run

    def handle(request: Request) -> bytes:
        return request.body.upper()

    run(handle)

A handler takes a `Request` and returns the body of the answer. It may raise `Requeue`, `Reject` or `WorkerError`;
any other exception is answered as an error and logged, and the worker goes on.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import multiprocessing
import os
import signal
import sys
import threading
from typing import TypedDict, Unpack

from osrdyne_amqp.errors import AccessRefused, InvalidUri
from osrdyne_amqp.message import MAX_BODY
from osrdyne_protocol.errors import MissingVariable
from osrdyne_protocol.worker_environment import WorkerEnvironment
from osrdyne_worker.errors import HandlerHung
from osrdyne_worker.handling import Handler, Reject, Request, Requeue, WorkerError
from osrdyne_worker.loop import Worker, WorkerOptions
from osrdyne_worker.runners import runner_of

__all__ = ["Handler", "Reject", "Request", "Requeue", "WorkerEnvironment", "WorkerError", "environment", "run", "serve"]


def environment() -> WorkerEnvironment:
    """Return what the daemon told this worker: its key, to load data for, and more. Raises `MissingVariable`."""
    return WorkerEnvironment.from_environ(os.environ)


def run(
    handler: Handler,
    *,
    prefetch: int | None = None,
    threads: int = 1,
    executor: concurrent.futures.Executor | None = None,
    alive_interval: float = 10.0,
    grace: float = 30.0,
    max_body: int = MAX_BODY,
) -> None:
    """Serve the key of this worker's environment until SIGTERM or SIGINT, and return once work in hand is finished.

    `handler`: a plain function runs in one of `threads` threads (with 0, on the loop itself: only for handlers that
    take no time) or in `executor`; an `async def` runs on the loop.
    `prefetch`: most requests that the broker hands to this worker at once; by default as many as there are threads.
    With more, requests wait here for a thread, and a crash of this worker counts against all of them.
    `alive_interval`: seconds between the events that tell that a long request is still worked on.
    `grace`: seconds that work in hand may take after SIGTERM; what takes longer goes to another worker.
    `max_body`: most bytes of an answer; a larger one becomes an error reply.

    A broker that is away, and a request queue that does not exist yet, are waited for. Raises SystemExit, after a
    line on standard error, with EX_CONFIG (78) when a variable or the URI is wrong and with EX_NOPERM (77) when the
    broker refuses this worker at its first connection, or later for half a minute: with a new password it is started
    anew, unless WORKER_AMQP_URI_FILE names a file that has it. A handler that holds a request until the broker takes
    it back (the pool's consumer timeout) and cannot be cancelled ends this process at once, with EX_SOFTWARE (70): its
    driver starts another.
    """
    try:
        asyncio.run(
            _serve_until_signal(
                handler,
                environment(),
                prefetch=prefetch,
                threads=threads,
                executor=executor,
                alive_interval=alive_interval,
                grace=grace,
                max_body=max_body,
            )
        )
    except HandlerHung as error:
        sys.stderr.write(f"osrdyne worker: {error}\n")
        _end_at_once(os.EX_SOFTWARE)
    except (MissingVariable, InvalidUri) as error:
        sys.stderr.write(f"osrdyne worker: {error}\n")
        raise SystemExit(os.EX_CONFIG) from None
    except AccessRefused as error:
        sys.stderr.write(f"osrdyne worker: {error}\n")
        raise SystemExit(os.EX_NOPERM) from None


def _end_at_once(status: int) -> None:
    """End this process and the processes of its executors; an orderly end would wait for what hangs."""
    for child in multiprocessing.active_children():
        child.kill()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


class ServeOptions(TypedDict, total=False):
    """The options of `run`, for those who pass them on."""

    prefetch: int | None
    threads: int
    executor: concurrent.futures.Executor | None
    alive_interval: float
    grace: float
    max_body: int


async def serve(
    handler: Handler, environment: WorkerEnvironment, stop: asyncio.Event, **options: Unpack[ServeOptions]
) -> None:
    """Do what `run` does on a loop of the caller's, until `stop` is set.

    Raises AccessRefused, InvalidUri, and HandlerHung where `run` would end the process.
    """
    threads, prefetch = options.get("threads", 1), options.get("prefetch")
    runner = runner_of(handler, threads, options.get("executor"))
    worker_options = WorkerOptions(
        prefetch=max(1, threads) if prefetch is None else prefetch,
        alive_interval=options.get("alive_interval", 10.0),
        grace=options.get("grace", 30.0),
        max_body=options.get("max_body", MAX_BODY),
    )
    try:
        await Worker(environment, runner, worker_options).run(stop)
    finally:
        runner.close()


async def _serve_until_signal(
    handler: Handler, environment: WorkerEnvironment, **options: Unpack[ServeOptions]
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        stop.set()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)  # a second one ends the process at once

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, on_signal)
    await serve(handler, environment, stop, **options)
