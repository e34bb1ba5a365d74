"""`python -m benchmarks`: run the measurements on a broker of their own, and print one table.

Exit status 0 whatever the figures are; 1 when something broke; 2 for a wrong command line. The table or the JSON goes
to standard output, progress to standard error.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections.abc import Callable

from rich.console import Console

from benchmarks import (
    bus_calls,
    bus_mesh,
    calls,
    cold_start,
    jobs_peers,
    jobs_store,
    key_spray,
    lost_queue,
    orphans,
    pipeline_source,
    pipeline_tables,
    recovery,
    relay_calls,
    relay_idle,
    report,
    stack_up,
    steady,
)
from benchmarks.ratios import Row
from benchmarks.rig import Rig
from osrdyne_runtime.console.streams import guarded
from testbed.broker import SUITES, Broker

#: In the order in which they run: what needs a quiet broker first.
MEASUREMENTS: dict[str, Callable[[Rig], list[Row]]] = {
    "calls": calls.measure,
    "orphans": orphans.measure,
    "cold-start": cold_start.measure,
    "steady": steady.measure,
    "recovery": recovery.measure,
    "lost-queue": lost_queue.measure,
    "key-spray": key_spray.measure,
    "stack-up": stack_up.measure,
    "jobs-store": jobs_store.measure,
    "jobs-peers": jobs_peers.measure,
    "relay-calls": relay_calls.measure,
    "relay-idle": relay_idle.measure,
    "bus-calls": bus_calls.measure,
    "bus-mesh": bus_mesh.measure,
    "pipeline-source": pipeline_source.measure,
    "pipeline-tables": pipeline_tables.measure,
}
VERSION = max(SUITES)


def main() -> int:
    """Run what the command line asks for, and return the exit status."""
    parser = _parser()
    arguments = parser.parse_args()
    if unknown := set(arguments.measurement) - set(MEASUREMENTS):
        parser.error(f"cannot measure {', '.join(sorted(unknown))}; there are {', '.join(MEASUREMENTS)}")
    if arguments.list:
        for name, measure in MEASUREMENTS.items():
            summary = (sys.modules[measure.__module__].__doc__ or "").splitlines()[0]
            print(f"{name:<17}{summary}")
        return 0
    rows, failed = _run(arguments.measurement or list(MEASUREMENTS), quick=arguments.quick)
    if arguments.json:
        print(json.dumps(report.document(rows, VERSION, failed), indent=2))
    else:
        facts = ", ".join(f"{name} {value}" for name, value in report.machine(VERSION).items())
        # As wide as the table needs where no terminal says how wide it is.
        console = Console(width=None if sys.stdout.isatty() else 200)
        console.print(report.table(rows))
        console.print(facts, highlight=False)
    for name in failed:
        print(f"bench: {name} broke; see above", file=sys.stderr)
    return 1 if failed else 0


def _run(names: list[str], *, quick: bool) -> tuple[list[Row], list[str]]:
    rows: list[Row] = []
    failed = []
    print(f"bench: starting RabbitMQ {VERSION}", file=sys.stderr, flush=True)
    with Broker(VERSION) as broker:
        for name in names:
            try:
                rows += MEASUREMENTS[name](Rig(broker, quick))
            except Exception:  # noqa: BLE001 - the others are measured all the same
                traceback.print_exc()
                failed.append(name)
    return rows, failed


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Compare with what else there is.")
    parser.add_argument("measurement", nargs="*", help=f"what to measure: {', '.join(MEASUREMENTS)}; by default all")
    parser.add_argument("--list", action="store_true", help="say what can be measured, and measure nothing")
    parser.add_argument("--quick", action="store_true", help="few and short rounds: whether it works, not how fast")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


if __name__ == "__main__":
    with guarded("benchmarks"):
        sys.exit(main())
