"""`python -m simulation.relay`: run or replay seeds of the relay's simulation; see docs/explain/simulation-jobs.md."""

from __future__ import annotations

import argparse
import os
import sys
import time

from osrdyne_runtime.console.streams import guarded
from simulation import seeds
from simulation.relay import runner

#: Seconds between two lines of progress.
_PROGRESS_SECONDS = 10.0


def main() -> int:
    """Do what the arguments say; the exit code is 1 when anything was found."""
    parser = argparse.ArgumentParser(prog="python -m simulation.relay", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds to run")
    seeds.add_first(parser)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="default: one a core")
    parser.add_argument("--replay", type=int, metavar="SEED", help="run one seed and print its trace")
    options = parser.parse_args()
    if options.replay is not None:
        return replay(options.replay)
    return many(options.first, options.seeds, options.processes)


def replay(seed: int) -> int:
    """Print the trace of one seed, and what is wrong with it."""
    world, verdict = runner.run_seed(seed)
    print("\n".join(world.trace))
    print(f"\nseed {seed}: {world.scenario.kind.value}")
    print("\n".join(verdict.findings()) or "nothing is wrong")
    return 1 if verdict.findings() else 0


def many(first: int, count: int, processes: int) -> int:
    """Run seeds, print findings as they come, and the totals at the end."""
    seeds.show_first(first, count)
    began = shown = time.monotonic()
    found: list[runner.Result] = []
    for result in runner.results(range(first, first + count), max(1, min(processes, count))):
        found.append(result)
        for finding in result.findings:
            print(f"seed {result.seed}: {finding}")
        if time.monotonic() - shown > _PROGRESS_SECONDS:
            shown = time.monotonic()
            print(f"{len(found)} of {count} seeds, {len(found) / (shown - began):.0f} a second", file=sys.stderr)
    sums = runner.total(found)
    print(
        f"simulate-relay: seeds={sums.seed} calls={sums.calls} answered={sums.answered} failed={sums.failed} "
        f"callers_died={sums.orphaned} lost={sums.lost} twice={sums.twice} broken={sums.broken}"
    )
    return 1 if any(verdict.findings for verdict in found) else 0


if __name__ == "__main__":
    with guarded("simulation.relay"):
        sys.exit(main())
