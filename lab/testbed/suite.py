"""Which engines a run of the tests may use: `make test` starts one RabbitMQ, and none that is slow to start or build.

tools/run_tests.py says in a variable which suite runs. Without it, as under a `pytest` by hand, all are allowed.
"""

from __future__ import annotations

import os

#: The variable.
SUITE = "OSRDYNE_TEST_SUITE"


class NotInThisSuite(RuntimeError):
    """A test of `make test` asked for an engine of `make test-all`."""


def in_make_test() -> bool:
    """Whether this is `make test`, which has ten minutes."""
    return os.environ.get(SUITE) == "test"


def examples(most: int) -> int:
    """Return how many examples a fuzzing test tries: all, or a quarter under `make test`."""
    return most // 4 if in_make_test() else most


def only_in_test_all(engine: str) -> None:
    """Raise NotInThisSuite under `make test`: the test lacks the mark `full`."""
    if in_make_test():
        raise NotInThisSuite(f"{engine} is not for `make test`: mark this test `full`")
