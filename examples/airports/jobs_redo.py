"""A redo process of `make demo-jobs`. Reads JOBS_DATABASE, AMQP_URI and JOBS_POOL; its name ends with its process id.

Its times are short, so that the demo is: `docs/reference/settings-pool.md` has the usual ones.
"""

from __future__ import annotations

import logging
import os
import signal
import threading

from osrdyne_client import Client
from osrdyne_jobs import Redo, RedoSettings, engine_for

SETTINGS = RedoSettings(interval=1.0, pause=20.0, lease=5.0, alive_interval=4.0, patience=15.0)


def main() -> None:
    """Scan until SIGTERM."""
    logging.basicConfig(level=logging.INFO)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with Client(os.environ["AMQP_URI"], os.environ["JOBS_POOL"]) as client:
        Redo(engine_for(os.environ["JOBS_DATABASE"]), client, SETTINGS, name=f"redo-{os.getpid()}").run(stop)


if __name__ == "__main__":
    main()
