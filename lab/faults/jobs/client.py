"""The client of a run, a process: registers jobs until standard input says `stop`, and ends when that closes.

It writes a line to its journal for each job after `submit` returned: its id, and when it was asked for. So the jobs of
a client that was killed are known. A job that the database did not take is submitted again.
"""

from __future__ import annotations

import itertools
import logging
import os
import sys
import threading
import time

from faults.jobs import load
from osrdyne_client import Client
from osrdyne_jobs import JobClient, NotRegistered

log = logging.getLogger(__name__)

#: Seconds before a job is submitted again.
PAUSE_SECONDS = 0.3


class Stop:
    """What standard input says."""

    def __init__(self) -> None:
        self.stopped, self.ended = threading.Event(), threading.Event()
        threading.Thread(target=self._read, name="standard input", daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin:
            if line.strip() == "stop":
                self.stopped.set()
        self.stopped.set()
        self.ended.set()


def main() -> None:
    """Register jobs until it is stopped."""
    logging.basicConfig(level=logging.WARNING)
    stop = Stop()
    journal = os.open(os.environ[load.JOURNAL], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with (
        Client(os.environ[load.URI], os.environ[load.POOL]) as client,
        JobClient(os.environ[load.DATABASE], load.TYPES, client, cast_after=load.REDO["pause"]) as jobs,
    ):
        for number in itertools.count():
            if stop.stopped.wait(1 / load.RATE):
                break
            submit(jobs, number, journal, stop)
        stop.ended.wait()


def submit(jobs: JobClient, number: int, journal: int, stop: Stop) -> None:
    """Register a job and write it down; again and again where the database is away."""
    while not stop.stopped.is_set():
        asked = time.monotonic()
        try:
            job = jobs.submit(*load.job(number))
        except NotRegistered as error:
            log.warning("submitted again: %s", error)
            stop.stopped.wait(PAUSE_SECONDS)
        else:
            # One call of the system: a client that is killed has written the line whole or not at all.
            os.write(journal, f"{job.id} {asked}\n".encode())
            return


if __name__ == "__main__":
    main()
