"""The benchmarks of the bus run, with the shortest rounds. No figure is asserted."""

from __future__ import annotations

from benchmarks import bus_calls, bus_mesh
from testbed.broker import Broker
from tests.broker.test_benchmarks import Brief


def test_the_measurement_returns_rows_and_leaves_nothing_on_the_broker(broker: Broker) -> None:
    before = {vhost["name"] for vhost in broker.management.get("vhosts")}

    rows = bus_calls.measure(Brief(broker, quick=True))

    assert len(rows) == 4
    assert all(row.ratio is not None for row in rows)
    assert {vhost["name"] for vhost in broker.management.get("vhosts")} == before


def test_the_measurement_beside_oslo_messaging_returns_rows(broker: Broker) -> None:
    rows = bus_mesh.measure(Brief(broker, quick=True))

    assert len(rows) == 8
    assert all(row.ratio is not None for row in rows)
