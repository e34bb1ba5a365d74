"""`run` and `serve`: a worker as a program of its own, and a worker on a loop of the caller's."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Generic, ParamSpec

from osrdyne_amqp.errors import AccessRefused, InvalidUri
from osrdyne_calls.handling import Handler
from osrdyne_calls.runners import runner_of
from osrdyne_protocol.errors import MissingVariable
from osrdyne_protocol.worker_environment import WorkerEnvironment
from osrdyne_runtime import program
from osrdyne_runtime.console.streams import last_words
from osrdyne_worker.errors import HandlerHung
from osrdyne_worker.loop import Worker, WorkerOptions

P = ParamSpec("P")

#: How its lines on standard error begin.
_WHO = "osrdyne worker"


def environment() -> WorkerEnvironment:
    """Return what the daemon passed to this worker: its key, to load data for, and more. Raises `MissingVariable`."""
    return WorkerEnvironment.from_environ(os.environ)


class _Worker(Generic[P]):
    """`run` and `serve`. Their keyword arguments are the fields of the options class, which lists them once.

    A type checker knows them by `P`, and an editor shows them. `nothing` is empty: all options are keyword-only.
    """

    def __init__(self, options: Callable[P, WorkerOptions]) -> None:
        self._options = options

    def run(self, handler: Handler, *nothing: P.args, **options: P.kwargs) -> None:
        """Serve the key of this worker's environment until SIGTERM or SIGINT, and return once work in hand is finished.

        `handler`: a plain function runs in a thread or in an executor; an `async def` runs on the loop. The keyword
        arguments are the fields of `WorkerOptions`.

        A broker that is away, and a request queue that does not exist yet, are waited for. Raises SystemExit, after a
        line on standard error, with EX_CONFIG (78) when a variable or the URI is wrong and with EX_NOPERM (77) when
        the broker refuses this worker at its first connection, or later for half a minute: its driver starts it again
        with a new password, unless WORKER_AMQP_URI_FILE names a file that has it. A handler that holds a request until
        the broker takes it back (the pool's consumer timeout) and cannot be cancelled ends this process at once, with
        EX_SOFTWARE (70): its driver starts another.

        The process ends with the same status when it still runs `grace` seconds after its main thread is over, because
        of threads that are not daemon threads. A line on standard error names them.
        """
        chosen = self._options(*nothing, **options)
        try:
            program.run(_serve_until_signal(handler, environment(), chosen), _WHO, chosen.grace)
        except HandlerHung as error:
            last_words(f"{_WHO}: {error}")
            program.end_at_once(os.EX_SOFTWARE)
        except (MissingVariable, InvalidUri) as error:
            last_words(f"{_WHO}: {error}")
            raise SystemExit(os.EX_CONFIG) from None
        except AccessRefused as error:
            last_words(f"{_WHO}: {error}")
            raise SystemExit(os.EX_NOPERM) from None

    async def serve(
        self,
        handler: Handler,
        environment: WorkerEnvironment,
        stop: asyncio.Event,
        *nothing: P.args,
        **options: P.kwargs,
    ) -> None:
        """Do what `run` does, on the caller's loop, until `stop` is set.

        Raises AccessRefused, InvalidUri, and HandlerHung where `run` would end the process.
        """
        await _serve(handler, environment, stop, self._options(*nothing, **options))


_worker = _Worker(WorkerOptions)
run, serve = _worker.run, _worker.serve


async def _serve(handler: Handler, environment: WorkerEnvironment, stop: asyncio.Event, options: WorkerOptions) -> None:
    runner = runner_of(handler, options.threads, options.executor)
    try:
        await Worker(environment, runner, options).run(stop)
    finally:
        runner.close()


async def _serve_until_signal(handler: Handler, environment: WorkerEnvironment, options: WorkerOptions) -> None:
    stop = asyncio.Event()
    program.on_stop_signal(stop.set, once=True)
    await _serve(handler, environment, stop, options)
