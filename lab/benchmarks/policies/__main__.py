"""`python -m benchmarks.policies`: judge policies that keep worker groups, on synthetic traces and on real flights.

Seeds below 100 are for trials; those from 101 on are held out: none of our settings was chosen with them. Exit status 0
whatever the figures are. Tables go to standard output, progress to standard error.
"""

from __future__ import annotations

import argparse
import json
import sys

import numpy as np

from benchmarks.policies import spes
from benchmarks.policies.flights import flights
from benchmarks.policies.judge import BUDGETS, GOALS, PEERS, Judgement, judge
from benchmarks.policies.traces import Shape, make
from osrdyne_pipeline.recommendation.calls import WEEK, Calls
from osrdyne_pipeline.recommendation.fitting import PERCENTILE
from osrdyne_runtime.console.streams import guarded

HELD_OUT = (101, 102, 103, 104, 105)


def main() -> int:
    """Run what the command line asks for, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.policies", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("seed", nargs="*", type=int, help="seeds of traces; by default those held out")
    parser.add_argument("--keys", type=int, default=Shape.keys)
    parser.add_argument("--days", type=int, default=Shape.days)
    parser.add_argument("--flights", action="store_true", help="judge the flights, too")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    arguments = parser.parse_args()
    shape = Shape(keys=arguments.keys, days=arguments.days)
    histories = [
        (f"seed {seed}", make(seed, shape)) for seed in arguments.seed or (() if arguments.flights else HELD_OUT)
    ]
    if arguments.flights:
        histories.append(("flights", flights()))
    found = {name: _judged(name, calls) for name, calls in histories}
    if arguments.json:
        print(
            json.dumps({name: {"measures": policy.measures(), "rows": _rows(policy)} for name, policy in found.items()})
        )
        return 0
    for name, policy in found.items():
        print(f"\n{name}\n{'':14}{'requests':>10}{'cold':>9}{'starts':>9}{'hours':>10}{'p75':>8}{'promised':>10}")
        for label, *values in _rows(policy):
            print(f"{label:14}{values[0]:>10}{values[1]:>9}{values[2]:>9}{values[3]:>10.0f}{values[4]:>8.3f}", end="")
            print(f"{values[5]:>10.3f}" if values[5] else "")
    print(f"\n{'measure':60}{'goal':>6}" + "".join(f"{name:>11}" for name in found) + f"{'median':>9}")
    measures = {name: policy.measures() for name, policy in found.items()}
    for measure, goal in GOALS.items():
        values = [each[measure] for each in measures.values()]
        line = "".join(f"{value:>10.3f}{' ' if value <= goal else '!'}" for value in values)
        print(f"{measure:60}{goal:>6g}{line}{np.median(values):>9.3f}")
    return 0


def _judged(name: str, calls: Calls) -> Judgement:
    count = int(calls.requests.sum())
    print(f"{name}: {count} calls, {len(calls.key)} stretches, {len(calls.keys)} keys", file=sys.stderr, flush=True)
    kinds = spes.kinds(calls, calls.since, calls.since + (calls.until - calls.since) // WEEK // 2 * WEEK)
    print(f"{name}: kinds of SPES: {kinds}", file=sys.stderr, flush=True)
    return judge(calls, lambda step: print(f"{name}: {step}", file=sys.stderr, flush=True))


def _rows(one: Judgement) -> list[tuple[str, int, int, int, float, float, float]]:
    names = ["today", *PEERS, "ours", *(f"ours at {part:g}" for part in BUDGETS)]
    promised = {"ours": one.promised[0.0]} | {f"ours at {part:g}": one.promised[part] for part in BUDGETS}
    return [
        (
            name,
            int(outcome.requests.sum()),
            int(outcome.cold.sum()),
            int(outcome.starts.sum()),
            float(outcome.hours.sum()),
            outcome.percentile(PERCENTILE),
            promised.get(name, 0.0),
        )
        for name, outcome in ((name, one.outcomes[name]) for name in names)
    ]


if __name__ == "__main__":
    with guarded("benchmarks.policies"):
        sys.exit(main())
