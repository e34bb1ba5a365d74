"""Runs many seeds of a simulation, on several processes, and adds up what came of them."""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import secrets
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import TypeVar

#: Where a first seed that is chosen at random lies.
MOST_RANDOM = 10**9
#: Seeds that a process takes at a time.
_CHUNK = 8
#: Seeds between two collections of garbage.
_COLLECT = 10


@dataclass(slots=True)
class SeedResult:
    """What one seed came to, small enough to send between processes."""

    seed: int
    #: Rules that did not hold.
    broken: int = 0
    findings: list[str] = field(default_factory=list)


Result = TypeVar("Result", bound=SeedResult)


def add_first(parser: argparse.ArgumentParser) -> None:
    """Add the option that says with which seed to begin."""
    text = "the first of them, or `random` (default: 1)"
    parser.add_argument("--first", type=_first, default=1, metavar="S", help=text)


def _first(text: str) -> int:
    return secrets.randbelow(MOST_RANDOM) if text == "random" else int(text)


def show_first(first: int, count: int) -> None:
    """Say which seeds run, so that a run can be repeated that began at random."""
    print(f"the first seed is {first}: SEEDS={count} FIRST={first} repeats this run", file=sys.stderr, flush=True)


def judged(kind: type[Result], judge: Callable[[int], Result], seed: int) -> Result:
    """Run and judge one seed; what the simulation itself fails on is a finding, too."""
    # A collector that starts by itself takes a tenth of the time.
    gc.disable()
    if seed % _COLLECT == 0:
        gc.collect()
    try:
        return judge(seed)
    except Exception:  # noqa: BLE001 - a seed that cannot be run is a finding, and the others go on
        return kind(seed, broken=1, findings=[f"the run failed:\n{traceback.format_exc()}"])
    finally:
        gc.enable()


def results(judge: Callable[[int], Result], seeds: Iterable[int], processes: int) -> Iterator[Result]:
    """Judge seeds on some processes; results come in the order of the seeds."""
    if processes == 1:
        yield from map(judge, seeds)
        return
    # Frozen: no collection looks at imported modules.
    with multiprocessing.get_context("spawn").Pool(processes, gc.freeze) as pool:
        yield from pool.imap(judge, seeds, chunksize=_CHUNK)


def total(found: Iterable[Result], sums: Result) -> Result:
    """Add results up in `sums`, a result without numbers; its seed is the number of seeds."""
    for verdict in found:
        sums.seed += 1
        for number in fields(sums):
            if number.type == "int" and number.name != "seed":
                setattr(sums, number.name, getattr(sums, number.name) + getattr(verdict, number.name))
    return sums
