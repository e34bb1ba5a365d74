"""`python -m simulation`: run seeds, replay one, or soak; see docs/explain/simulation.md."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict

from osrdyne_runtime.console.streams import guarded
from simulation import runner, seeds

#: Seconds between two lines of progress.
_PROGRESS_SECONDS = 10.0


def main() -> int:
    """Do what the arguments say; the exit code is 1 when anything was found."""
    parser = argparse.ArgumentParser(prog="python -m simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds to run")
    seeds.add_first(parser)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)")
    parser.add_argument("--replay", type=int, metavar="SEED", help="run one seed and print its history")
    parser.add_argument("--soak", type=int, metavar="KEYS", help="let so many keys come and go within an hour")
    parser.add_argument("--json", action="store_true", help="print findings and totals as JSON, a line a seed")
    options = parser.parse_args()
    if options.replay is not None:
        return replay(options.replay)
    if options.soak is not None:
        return soak(options.soak)
    return many(options.first, options.seeds, options.jobs, as_json=options.json)


def replay(seed: int) -> int:
    """Print the history of one seed, and what is wrong with it."""
    outcome, verdict = runner.run_seed(seed)
    for line in outcome.history.lines():
        print(line)
    print(f"\nseed {seed}: {outcome.scenario.kind.value}, RabbitMQ {outcome.scenario.version}")
    for fault in outcome.scenario.faults:
        print(f"  fault: {fault}")
    for plan in outcome.scenario.requests:
        print(f"  {plan}")
    print("\n".join(verdict.findings()) or "nothing is wrong")
    return 0 if verdict.good else 1


def many(first: int, count: int, jobs: int, *, as_json: bool) -> int:
    """Run seeds, print findings as they come, and the totals at the end."""
    seeds.show_first(first, count)
    began = shown = time.monotonic()
    found: list[runner.Result] = []
    for result in runner.results(range(first, first + count), max(1, min(jobs, count))):
        found.append(result)
        if as_json:
            print(json.dumps(asdict(result)))
        elif result.findings:
            print(f"seed {result.seed}: replay with `python -m simulation --replay {result.seed}`")
            for text in result.findings:
                print(f"  {text}")
        if time.monotonic() - shown > _PROGRESS_SECONDS:
            shown = time.monotonic()
            rate = len(found) / (shown - began)
            print(f"{len(found)} of {count} seeds, {rate:.0f} a second", file=sys.stderr, flush=True)
    sums = runner.total(found)
    print(
        f"{sums.requests} requests, {sums.duplicated} served or answered more than once, "
        f"{sums.lost_by_broker} lost by the broker itself, "
        f"{time.monotonic() - began:.0f} s",
        file=sys.stderr,
    )
    # The last line is read by programs.
    print(
        f"simulate: seeds={sums.seed} lost={sums.lost} unanswered={sums.unanswered} invariants_broken={sums.broken}",
        flush=True,
    )
    return 1 if sums.lost or sums.unanswered or sums.broken else 0


def soak(keys: int) -> int:
    """Let keys come and go, and say how large everything in the daemon became."""
    from simulation import soak as soaking

    return soaking.main(keys)


if __name__ == "__main__":
    with guarded("simulation"):
        sys.exit(main())
