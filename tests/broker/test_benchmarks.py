"""The benchmarks run: every measurement with the shortest rounds, on a real broker. No figure is asserted."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from benchmarks.__main__ import MEASUREMENTS
from benchmarks.rig import Rig
from testbed.broker import Broker


@dataclass(frozen=True, slots=True)
class Brief(Rig):
    """One round, as short as can be."""

    @property
    def rounds(self) -> int:
        return 1

    @property
    def seconds(self) -> float:
        return 0.1


#: Not those that need more than a broker, which the tiers of the pipeline, of infra and of the jobs run.
ON_A_BROKER = [name for name in MEASUREMENTS if not name.startswith(("pipeline-", "stack-", "jobs-", "bus-"))]
#: The one that `make test` runs.
QUICKEST = "steady"


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.fast if name == QUICKEST else pytest.mark.full) for name in ON_A_BROKER],
)
def test_a_measurement_returns_rows_and_leaves_nothing_on_the_broker(broker: Broker, name: str) -> None:
    before = vhosts(broker)

    rows = MEASUREMENTS[name](Brief(broker, quick=True))

    assert rows
    assert all(row.ours.median >= 0 for row in rows)
    assert all(row.ratio is not None for row in rows if row.peer is not None)
    assert vhosts(broker) == before


def vhosts(broker: Broker) -> set[str]:
    """Those of benchmarks, on a broker that other tests use, too."""
    return {vhost["name"] for vhost in broker.management.get("vhosts") if vhost["name"].startswith("bench")}
