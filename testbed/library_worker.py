"""A worker with our library that does what a request's body says: `error`, `requeue`, `reject`, `sleep SECONDS`; else
it answers with the key, `|` and the body.
"""

from __future__ import annotations

import time

from osrdyne_worker import Reject, Request, Requeue, WorkerError, run


def handle(request: Request) -> bytes:
    """Obey."""
    word, _, argument = request.body.partition(b" ")
    if word == b"error":
        raise WorkerError(b"no such airport", reason="asked for an error")
    if word == b"requeue":
        raise Requeue
    if word == b"reject":
        raise Reject("asked for a refusal")
    if word == b"sleep":
        time.sleep(float(argument))
    if word == b"headers":
        return repr(sorted(request.headers.items())).encode()
    return request.key.encode() + b"|" + request.body


if __name__ == "__main__":
    run(handle)
