"""`python -m faults`: faults on real brokers under load, and an account of every request.

Exit status 0 when nothing was lost, everything was injected, and all recovered; 1 when not; 2 for a wrong command
line. The table and the last line go to standard output, progress to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType

from rich.console import Console

from faults import report
from faults.plan import KINDS, SABOTAGE
from faults.run import Result, Run, say_to_stderr
from osrdyne_runtime.console.streams import guarded
from testbed import ROOT
from testbed.broker import SUITES

#: Option of the process that tests one version. It ends with the process that started it.
CHILD = "--child"
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
    if arguments.child:
        _end_with_standard_input()
        say = say_to_stderr(arguments.broker)
        result = Run(arguments.broker, seed, arguments.duration, kinds, arguments.keep, say).go()
        print(json.dumps(report.to_json(result)))
        return 0
    results = _side_by_side([arguments.broker] if arguments.broker else sorted(SUITES), seed)
    if results is None:
        return 1
    if arguments.json:
        print(json.dumps([report.to_json(result) for result in results], indent=2))
    else:
        # Without a terminal there is no width to keep to: this is as wide as the table needs.
        Console(width=None if sys.stdout.isatty() else 140).print(report.table(results))
    for trouble in (trouble for result in results for trouble in result.troubles):
        print(f"faults: {trouble}", file=sys.stdout if not arguments.json else sys.stderr)
    print(report.last_line(results), file=sys.stdout if not arguments.json else sys.stderr)
    return 0 if report.is_good(results) else 1


def _side_by_side(versions: list[str], seed: int) -> list[Result] | None:
    """Run each version in a process of its own; None when one of them broke."""
    print(f"faults: seed {seed}, RabbitMQ {' and '.join(versions)}", file=sys.stderr, flush=True)
    children = [
        subprocess.Popen(
            # Of an option that is given twice, the last one counts.
            [sys.executable, "-m", "faults", *sys.argv[1:], CHILD, "--broker", version, "--seed", str(seed)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for version in versions
    ]
    results = []
    try:
        for child in children:
            assert child.stdout is not None
            text = child.stdout.read()
            if child.wait() == 0:
                results.append(report.from_json(json.loads(text)))
    finally:
        for child in children:
            for stream in (child.stdin, child.stdout):
                if stream is not None:
                    stream.close()
            child.wait()
    return results if len(results) == len(versions) else None


def _end_with_standard_input() -> None:
    """Clean up and end, once, at Ctrl-C or when the process that started this one has ended in whatever way."""

    def interrupted(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupted)

    def watch() -> None:
        sys.stdin.read()
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m faults", description="Faults on real brokers, under load.")
    parser.add_argument("--duration", type=float, default=120.0, help="seconds of load and faults; default 120")
    parser.add_argument("--broker", choices=sorted(SUITES), help="version; by default all of them, side by side")
    parser.add_argument("--seed", type=int, help="seed of what happens when; by default another one each time")
    parser.add_argument("--only", help=f"kinds of faults, separated by commas: {', '.join(KINDS)}")
    parser.add_argument("--keep", type=Path, help="directory for logs and journals; by default they are removed")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(CHILD, action="store_true", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    with guarded("faults"):
        try:
            sys.exit(main())
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
