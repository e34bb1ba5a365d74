"""Which seeds the simulations run: the same few in each `make test`, and many others in each `make test-all`."""

from __future__ import annotations

import os

#: Seeds of each simulation in `make test-all`, and those of one test.
MANY, PART = 10_000, 1000


def first_seed() -> int:
    """The first seed of this run: tools/run_tests.py chooses it, and its head shows it."""
    return int(os.environ.get("OSRDYNE_FIRST_SEED") or 1)


def many() -> list[range]:
    """The seeds of `make test-all`, a range for each test."""
    first = first_seed()
    return [range(number, number + PART) for number in range(first, first + MANY, PART)]
