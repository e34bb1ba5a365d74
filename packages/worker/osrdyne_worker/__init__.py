"""Write a worker: a handler, and a call of `run`.

    from osrdyne_worker import Request, run

    def handle(request: Request) -> bytes:
        return request.body.upper()

    run(handle)

A handler takes a `Request` and returns the body of the answer. It may raise `Requeue`, `Reject` or `WorkerError`; any
other exception is answered as an error and logged, and the worker goes on. All of it is in docs/howto/worker.md.

`service` has `run` and `serve`. Beneath it, `loop` takes requests over a `session` with the broker, passes them to a
handler through one of the runners of `osrdyne_calls`, and reports them as `events`. `in_flight` is one request in hand,
`suspects` orders those with which a worker has ended, `consumer_timeout` handles one that takes too long, `errors` has
what ends a worker. All modules here run inside a worker. The daemon starts and stops workers.
"""

from osrdyne_calls.handling import Handler, Reject, Request, Requeue, WorkerError
from osrdyne_protocol.worker_environment import WorkerEnvironment
from osrdyne_worker.loop import WorkerOptions
from osrdyne_worker.service import environment, run, serve

__all__ = [
    "Handler",
    "Reject",
    "Request",
    "Requeue",
    "WorkerEnvironment",
    "WorkerError",
    "WorkerOptions",
    "environment",
    "run",
    "serve",
]
