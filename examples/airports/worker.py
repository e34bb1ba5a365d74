"""The worker process of the pool `airports`: loads the flights to one airport, answers questions about them.

Reads the WORKER_* variables that the daemon's driver sets, and the flights (see `cache`). Started by any of

    python -m examples.airports.worker          in the checkout
    python .../examples/airports/worker.py      anywhere
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time

# Until `worker.run` takes over, a stop ends this process at once. Without a handler, a process that is number 1 of its
# container would not even hear of it, and would be killed when its grace, half an hour, is over.
if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))

if not __package__:  # started by its path: Python then looks for modules in this folder, not in the checkout
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from examples.airports import cache, fields, flights, questions
from osrdyne_protocol.errors import MissingVariable
from osrdyne_worker import Request, WorkerError, environment, run


def main() -> int:
    """Serve one destination until SIGTERM."""
    logging.basicConfig(level=logging.INFO)
    started = time.perf_counter()
    try:
        given = environment()
        airport = cache.load(given.key)
    except (MissingVariable, cache.NoDataSet, flights.DamagedData) as error:
        print(f"airports: {error}", file=sys.stderr, flush=True)
        return 1
    milliseconds = (time.perf_counter() - started) * 1000
    print(f"airports: {len(airport.flights)} flights to {airport.code!r} in {milliseconds:.1f} ms", flush=True)
    served = 0

    def handle(request: Request) -> bytes:
        nonlocal served
        try:
            answer = questions.answer(airport, questions.parse(request.body))
        except fields.BadQuestion as error:
            raise WorkerError(body=_json({"error": str(error)})) from error
        served += 1
        # The worker that answered, and the number of its answers so far: the first one shows the caller a cold start.
        return _json(answer | {"served_by": {"worker": given.id, "answers": served}})

    run(handle)
    return 0


def _json(content: object) -> bytes:
    return json.dumps(content).encode()


if __name__ == "__main__":
    sys.exit(main())
