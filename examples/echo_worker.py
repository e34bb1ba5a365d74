"""A worker with our library: it answers every request with its own body in capitals.

The daemon starts it with the six WORKER_* variables; docs/howto/worker.md says what else a worker can do.
"""

from __future__ import annotations

import logging

from osrdyne_worker import Request, environment, run

logger = logging.getLogger(__name__)


def handle(request: Request) -> bytes:
    return request.body.upper()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    logger.info("loading what this key needs", extra={"key": environment().key})
    run(handle)
