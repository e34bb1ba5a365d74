"""`python -m simulation.jobs`: run or replay seeds of the jobs' simulation; see docs/explain/simulation-jobs.md."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict

from osrdyne_runtime.console.streams import guarded
from simulation import seeds
from simulation.jobs import runner

#: Seconds between two lines of progress.
_PROGRESS_SECONDS = 10.0


def main() -> int:
    """Do what the arguments say; the exit code is 1 when anything was found."""
    parser = argparse.ArgumentParser(prog="python -m simulation.jobs", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds to run")
    seeds.add_first(parser)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="default: one a core")
    parser.add_argument("--replay", type=int, metavar="SEED", help="run one seed and print its trace")
    parser.add_argument("--json", action="store_true", help="print findings and totals as JSON, a line a seed")
    options = parser.parse_args()
    if options.replay is not None:
        return replay(options.replay)
    return many(options.first, options.seeds, options.processes, as_json=options.json)


def replay(seed: int) -> int:
    """Print the trace of one seed, and what is wrong with it."""
    outcome, verdict = runner.run_seed(seed)
    print("\n".join(outcome.trace))
    print(f"\nseed {seed}: {outcome.scenario.kind.value}, {outcome.seconds:.0f} s")
    for plan in outcome.scenario.jobs:
        print(f"  {plan}")
    print("\n".join(verdict.findings()) or "nothing is wrong")
    return 1 if verdict.findings() else 0


def many(first: int, count: int, processes: int, *, as_json: bool) -> int:
    """Run seeds, print findings as they come, and the totals at the end."""
    seeds.show_first(first, count)
    began = shown = time.monotonic()
    found: list[runner.Result] = []
    for result in runner.results(range(first, first + count), max(1, min(processes, count))):
        found.append(result)
        if as_json:
            print(json.dumps(asdict(result)))
        elif result.findings:
            _show(result)
        if time.monotonic() - shown > _PROGRESS_SECONDS:
            shown = time.monotonic()
            print(f"{len(found)} of {count} seeds, {len(found) / (shown - began):.0f} a second", file=sys.stderr)
    sums = runner.total(found)
    print(
        f"{sums.jobs} jobs, {sums.runs} runs, {sums.parked} parked, {sums.cancelled} cancelled, "
        f"{sums.leases_lost} leases lost, {sums.late_handlers} handlers that went on after the next run began, "
        f"{sums.refused} effects refused by a foreign store, {time.monotonic() - began:.0f} s",
        file=sys.stderr,
    )
    # The last line is read by programs.
    print(
        f"simulate-jobs: seeds={sums.seed} registered={sums.jobs} runs={sums.runs} parked={sums.parked} "
        f"lost={sums.lost} overlapping={sums.overlapping} broken={sums.broken}",
        flush=True,
    )
    return 1 if sums.lost or sums.overlapping or sums.broken else 0


def _show(one: runner.Result) -> None:
    print(f"seed {one.seed}: repeat with `python -m simulation.jobs --replay {one.seed}`")
    for line in one.trace:
        print(f"    {line}")
    for text in one.findings:
        print(f"  {text}")


if __name__ == "__main__":
    with guarded("simulation.jobs"):
        sys.exit(main())
