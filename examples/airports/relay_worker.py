"""A worker of `make demo-relay`: polls at nodes of the relay for some airports, and answers questions about them.

Started by `python -m examples.airports.relay_worker NODES TOKEN-FILE RUNS AIRPORT...`: addresses of nodes with commas
between them, and a file to which the number of each request is written before it is answered.
"""

from __future__ import annotations

import json
import logging
import sys
from functools import cache as once
from pathlib import Path

from examples.airports import cache, fields, flights, questions
from osrdyne_relay.worker import RelayWorker
from osrdyne_worker import Request, WorkerError

#: The endpoints are below this, as the keys of a pool would be.
POOL = "airports"
#: Header of a request that has its number.
NUMBER = "x-number"


def main(arguments: list[str]) -> int:
    """Serve until SIGTERM."""
    logging.basicConfig(level=logging.ERROR)
    nodes, token_file, runs, *airports = arguments
    load = once(lambda code: flights.load(code, cache.folder()))
    with Path(runs).open("a", buffering=1) as written:

        def handle(request: Request) -> bytes:
            written.write(f"{request.headers[NUMBER]}\n")
            try:
                return json.dumps(questions.answer(load(request.key), questions.parse(request.body))).encode()
            except fields.BadQuestion as error:
                raise WorkerError(json.dumps({"error": str(error)}).encode()) from error

        endpoints = [f"{POOL}/{airport}" for airport in airports]
        RelayWorker(nodes.split(","), endpoints, handle, token_file=Path(token_file), grace=5.0).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
