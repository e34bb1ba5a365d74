"""One user sprays 10,000 random keys in 10 s: how late refusals and new keys of honest users are.

Nothing else uses the broker meanwhile, as in the faults, where the load of a run shares the machine.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.ratios import Row, Target, compared
from benchmarks.rig import Rig
from faults.key_spray import SprayResult, sprayed_once

#: A request beyond the budget is refused within this time.
REFUSED_WITHIN_MS = 50.0
#: Sprays of a run. A spray has few new keys of honest users, so that one slow start is its p99.
SPRAYS = 15


def measure(rig: Rig) -> list[Row]:
    """Return how late 99 of 100 refusals and new keys are, beside a spray. Raises AssertionError where one is lost."""
    seen: list[SprayResult] = []
    number = 1 if rig.quick else SPRAYS
    with tempfile.TemporaryDirectory(prefix="osrdyne-bench-") as directory:
        for index in range(number):
            rig.progress(f"key spray {index + 1} of {number}")
            seen.append(sprayed_once(rig.broker, Path(directory)))
    return [
        compared(
            "refusal beside a spray of 1,000 keys/s, p99",
            "ms",
            [beside.probe.late("throttled") for beside in seen],
            [REFUSED_WITHIN_MS] * number,
            "the time that is allowed",
            Target(1.0, at_most=True),
        ),
        compared(
            "new key of an honest user in the sprayed pool, p99",
            "ms",
            [beside.sprayed.late("ok") for beside in seen],
            [beside.control.late("ok") for beside in seen],
            "a second pool that is not sprayed",
            Target(1.2, at_most=True),
        ),
    ]
