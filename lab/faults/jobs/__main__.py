"""`python -m faults.jobs`: faults on real engines while jobs are done, and an account of every job.

Exit status 0 when no job was lost, none overlapped, everything was injected, and all recovered; 1 when not; 2 where the
command line is wrong or the engines cannot start. The table and the last line go to standard output, progress to
standard error.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import random
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from faults.jobs.kinds import KINDS, SABOTAGE
from faults.jobs.run import Result, Run
from osrdyne_runtime.console.streams import guarded
from testbed import postgres
from testbed.apt import NotInstalled
from testbed.broker import NEWEST, SUITES, BrokerFailed
from testbed.postgres import PostgresFailed

#: Exit status after Ctrl-C, as shells have it.
INTERRUPTED = 130


def main() -> int:
    """Run what the command line asks for, and return the exit status."""
    parser = _parser()
    arguments = parser.parse_args()
    kinds = arguments.only.split(",") if arguments.only else list(KINDS)
    if unknown := set(kinds) - {*KINDS, *SABOTAGE}:
        parser.error(f"no such fault: {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    seed = random.SystemRandom().randrange(1_000_000) if arguments.seed is None else arguments.seed
    logging.basicConfig(level=logging.ERROR)
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"faults: {time.monotonic() - began:6.1f} s  {text}", file=sys.stderr, flush=True)

    say(f"seed {seed}, RabbitMQ {arguments.broker} and PostgreSQL")
    try:
        postgres.install()
        result = Run(arguments.broker, seed, arguments.duration, kinds, arguments.keep).go(say)
    except (NotInstalled, BrokerFailed, PostgresFailed, OSError) as error:
        print(f"faults: {error}", file=sys.stderr)
        return 2
    human = sys.stderr if arguments.json else sys.stdout
    if arguments.json:
        print(json.dumps(dataclasses.asdict(result), indent=2))
    else:
        Console(width=None if sys.stdout.isatty() else 140).print(table(result))
    for trouble in result.troubles:
        print(f"faults: {trouble}", file=human)
    print(last_line(result), file=human)
    return 1 if result.troubles else 0


def table(result: Result) -> Table:
    """Return the kinds of faults, with the evidence of the last one of each."""
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in result.outcomes.items())
    caption = f"RabbitMQ {result.version} with seed {result.seed}. Runs: {outcomes}."
    found = Table(title="Faults while jobs were done", caption=caption)
    found.add_column("fault", no_wrap=True)
    for name in ("injected", "all well again after"):
        found.add_column(name, justify="right")
    found.add_column("evidence of the last one")
    for kind, done in result.kinds.items():
        found.add_row(kind, str(done.injected), f"{done.longest:.1f} s", done.evidence)
    return found


def last_line(result: Result) -> str:
    """Return the line that ends every run, for people and programs."""
    found = result.account
    assert found is not None
    injected = sum(kind.injected for kind in result.kinds.values())
    return (
        f"jobs: injected={injected} registered={found.registered} done={found.done} runs={found.runs} "
        f"refused={found.refused} parked={found.parked} lost={len(found.lost)} overlapping={len(found.overlapping)}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m faults.jobs", description="Faults on real engines, with jobs.")
    parser.add_argument("--duration", type=float, default=120.0, help="seconds of load and faults; default 120")
    parser.add_argument("--broker", choices=sorted(SUITES), default=NEWEST, help=f"version; default {NEWEST}")
    parser.add_argument("--seed", type=int, help="seed of what happens when; by default another one each time")
    parser.add_argument("--only", help=f"kinds of faults, separated by commas: {', '.join(KINDS)}")
    parser.add_argument("--keep", type=Path, help="directory for logs and journals; by default they are removed")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


if __name__ == "__main__":
    with guarded("faults.jobs"):
        try:
            sys.exit(main())
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
