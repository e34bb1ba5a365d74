"""`make demo-jobs`: recomputes every airport and day of a month as jobs, while processes are killed.

Each destination has a worker that does its jobs. Workers, the broker and the redo process that leads get SIGKILL again
and again. At the end every job is accounted for, and its figures are compared with those of the whole table. Ends with
one line for scripts; exits with 1 when a job was lost, overlapped with another one or has wrong figures, with 2 when
the demo could not begin.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from random import Random

from sqlalchemy import func, select

from examples.airports import cache, jobs_account, jobs_kills, jobs_results, prepare, whole_days
from examples.airports.jobs_rig import Rig, rig
from examples.airports.jobs_worker import RECOMPUTE
from osrdyne_client import Client
from osrdyne_jobs import JobClient, NotRegistered, states
from osrdyne_jobs.database import tables
from osrdyne_jobs.database.engines import reading
from osrdyne_jobs.store import administration
from osrdyne_runtime.console.streams import guarded
from testbed.apt import NotInstalled
from testbed.broker import BrokerFailed
from testbed.postgres import PostgresFailed

#: The month whose days are recomputed: January 2013.
MONTH = 1
FIRST, DAYS = date(2013, MONTH, 1), 31
#: Seconds between two looks at the jobs, and between two lines about them.
LOOK_SECONDS, TALK_SECONDS = 0.25, 5.0
#: States of a job with which nothing more happens.
ENDED = {states.DONE, states.PARKED, states.CANCELLED}


class JobSubmitter(threading.Thread):
    """Registers all jobs: airport by airport, the days in their order."""

    def __init__(self, jobs: JobClient, tasks: Sequence[jobs_account.Task]) -> None:
        super().__init__(name="submit", daemon=True)
        self._jobs = jobs
        self._tasks = tasks
        #: The jobs that are registered, by id.
        self.submitted: dict[int, jobs_account.Task] = {}
        self._enough = threading.Event()

    def run(self) -> None:
        for task in self._tasks:
            self._submit(*task)

    def _submit(self, airport: str, day: date) -> None:
        while not self._enough.is_set():
            try:
                job = self._jobs.submit(RECOMPUTE.name, airport, day)
            except NotRegistered as error:
                _say(f"{airport} {day} is submitted again: {error}")
                self._enough.wait(1.0)
            else:
                self.submitted[job.id] = (airport, day)
                return

    def end(self) -> None:
        """Submit no more."""
        self._enough.set()
        self.join()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; return the exit code."""
    options = _parser().parse_args(arguments)
    # A client of the pool says for each connection that it tries again, and redo casts the jobs later anyway.
    logging.basicConfig(level=logging.ERROR)
    began = time.monotonic()
    try:
        source, prepared = cache.source(), cache.folder()
        _say("preparing the flights, starting a broker, a database, a daemon and two redo processes")
        prepare.write(source, prepared)
        expected = whole_days.figures(Path(source), MONTH)
        found = _run(options, expected)
    except KeyboardInterrupt:
        return 130
    except (cache.NoDataSet, NotInstalled, BrokerFailed, PostgresFailed, OSError) as error:
        print(f"demo-jobs: {error}", file=sys.stderr)
        return 2
    _say(f"done in {time.monotonic() - began:.0f} s; wrong figures: {found.wrong}")
    if options.json:
        print(json.dumps(dataclasses.asdict(found)))
    print(found.last_line, file=sys.stderr if options.json else sys.stdout)
    return 0 if found.good else 1


def _run(options: argparse.Namespace, expected: whole_days.Found) -> jobs_account.Account:
    random = Random(options.seed)
    tasks = tasks_of(sorted({airport for airport, _ in expected}), options.airports, options.days, random)
    if options.by_day:
        tasks.sort(key=lambda task: task[1])
    counts = {"worker": options.worker_kills, "broker": options.broker_kills, "redo": options.redo_kills}
    kills = jobs_kills.plan(len(tasks), counts, random)
    with (
        tempfile.TemporaryDirectory(prefix="osrdyne-demo-jobs-") as folder,
        rig(Path(folder), on_postgres=options.postgres, seconds=options.seconds) as all_of_it,
        Client(all_of_it.pool.client_uri, all_of_it.pool.settings.name) as client,
        JobClient(all_of_it.engine, [RECOMPUTE], client) as jobs,
    ):
        days = f"{options.days} days of {len(tasks) // options.days} airports"
        _say(f"{len(tasks)} jobs: {days}; {len(kills)} kills; seed {options.seed}")
        submitting = JobSubmitter(jobs, tasks)
        submitting.start()
        _watch(all_of_it, len(tasks), kills, random, time.monotonic() + options.timeout)
        submitting.end()
        return _account(all_of_it, submitting.submitted, expected)


def tasks_of(airports: Sequence[str], most: int | None, days: int, random: Random) -> list[jobs_account.Task]:
    """Return what is recomputed: the first days of the month, of at most so many airports, chosen by chance."""
    chosen = random.sample(airports, min(most or len(airports), len(airports)))
    return [(airport, FIRST + timedelta(number)) for airport in chosen for number in range(days)]


def _watch(all_of_it: Rig, jobs: int, kills: list[jobs_kills.Kill], random: Random, until: float) -> None:
    """Kill as planned until all jobs have ended, or for as long as the demo may take."""
    began, pause, said = time.monotonic(), threading.Event(), 0.0
    while time.monotonic() < until:
        with reading(all_of_it.engine) as connection:
            counts = administration.counts(connection)
        ended = sum(counts[state] for state in ENDED)
        if time.monotonic() - said >= TALK_SECONDS or ended == jobs:
            said = time.monotonic()
            _say(f"{said - began:4.0f} s: " + ", ".join(f"{count} {state}" for state, count in counts.items() if count))
        if ended == jobs:
            return
        if kills and ended >= kills[0].after and (killed := all_of_it.kill(kills[0].what, random)):
            kills.pop(0)
            _say(f"{time.monotonic() - began:4.0f} s: killed {killed}; {len(kills)} kills are left")
        all_of_it.keep_running()
        pause.wait(LOOK_SECONDS)


def _account(
    all_of_it: Rig, submitted: dict[int, jobs_account.Task], expected: whole_days.Found
) -> jobs_account.Account:
    with reading(all_of_it.engine) as connection:
        known = {job.id: job.state for job in connection.execute(select(tables.job.c.id, tables.job.c.state))}
        outcomes = select(tables.run.c.outcome, func.count()).group_by(tables.run.c.outcome)
        runs = {outcome: int(count) for outcome, count in connection.execute(outcomes)}
        results, effects = jobs_results.results(connection), jobs_results.effects(connection)
    _say("runs: " + ", ".join(f"{count} {outcome}" for outcome, count in runs.items()))
    return jobs_account.account(submitted, known, sum(runs.values()), results, effects, expected)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make demo-jobs", description=(__doc__ or "").partition("\n\n")[0])
    option = parser.add_argument
    option("--postgres", action="store_true", help="keep the jobs in a PostgreSQL, not in a file of SQLite")
    option("--seed", type=int, default=1, help="chooses what is killed and when (%(default)s)")
    option("--airports", type=int, help="most airports; without it all that had flights")
    option("--days", type=int, choices=range(1, DAYS + 1), default=DAYS, metavar="N", help="days (%(default)s)")
    option("--by-day", action="store_true", help="submit day by day: all workers run at once (default: by airport)")
    option("--seconds", type=float, default=0.1, help="how long a job takes at least (%(default)s)")
    option("--worker-kills", type=int, default=24, metavar="N", help="workers that are killed (%(default)s)")
    option("--broker-kills", type=int, default=3, metavar="N", help="kills of the broker (%(default)s)")
    option("--redo-kills", type=int, default=3, metavar="N", help="kills of the leading redo process (%(default)s)")
    option("--timeout", type=float, default=1200.0, help="seconds after which jobs are lost (%(default)g)")
    option("--json", action="store_true", help="print the numbers as one JSON object; the rest goes to stderr")
    return parser


if __name__ == "__main__":
    with guarded("demo-jobs"):
        sys.exit(main())
