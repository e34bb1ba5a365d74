"""The worker of a run: its jobs take as long as their payload says, and leave a row in the table `effect`.

It does not look at `run.cancelled`, so a run that has lost its lease tries to write all the same. It notes each step
of each run in a file: what, token, process.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from pathlib import Path

# A stop before the worker serves ends this process at once.
if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))

from sqlalchemy import BigInteger, Column, Float, MetaData, String, Table, insert

from faults.jobs import load
from osrdyne_jobs import JobWorker, LeaseLost, Run, engine_for

metadata = MetaData()
#: One row a run whose effect was accepted. Times are those of the machine's monotonic clock, in seconds.
effect = Table(
    "effect",
    metadata,
    Column("token", BigInteger, primary_key=True, autoincrement=False),
    Column("type", String(20), nullable=False),
    Column("resource", String(20), nullable=False),
    Column("began", Float(53), nullable=False),
    Column("ended", Float(53), nullable=False),
)
#: What is noted of a run: its handler begins, it is about to write, its write was refused.
BEGINS, WRITES, REFUSED = "begins", "writes", "refused"


def main() -> None:
    """Do the jobs of one resource until SIGTERM."""
    logging.basicConfig(level=logging.INFO)
    engine = engine_for(os.environ[load.DATABASE])
    notes = os.open(os.environ[load.NOTES], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    unfenced = Path(os.environ[load.UNFENCED])

    def note(word: str, run: Run) -> None:
        os.write(notes, f"{word} {run.token} {os.getpid()}\n".encode())

    def do(run: Run) -> None:
        began = time.monotonic()
        note(BEGINS, run)
        time.sleep(run.payload)
        note(WRITES, run)
        try:
            # Without the fence only to show that the account sees what comes of it.
            with engine.begin() if unfenced.exists() else run.transaction() as connection:
                where = {"type": run.type, "resource": run.resource}
                values = {"token": run.token, **where, "began": began, "ended": time.monotonic()}
                connection.execute(insert(effect).values(values))
        except LeaseLost:
            note(REFUSED, run)
            raise

    handlers = dict.fromkeys(load.TYPES, do)
    JobWorker(engine, handlers, lease=load.LEASE_SECONDS, threads=len(load.TYPES)).run()


if __name__ == "__main__":
    main()
