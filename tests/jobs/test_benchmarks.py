"""The measurements of jobs run in short rounds, on a real broker and a real PostgreSQL. No figure is asserted."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from benchmarks import jobs_peers, jobs_store
from benchmarks.rig import Rig
from testbed.broker import Broker

pytestmark = pytest.mark.full


@dataclass(frozen=True, slots=True)
class Brief(Rig):
    """One round."""

    @property
    def rounds(self) -> int:
        return 1


def test_a_submit_is_compared_with_plain_inserts_and_a_large_scan_with_a_small_one(broker: Broker) -> None:
    rows = jobs_store.measure(Brief(broker, quick=True))
    assert [row.peer_name for row in rows[:4]] == [jobs_store.SQLALCHEMY, jobs_store.DRIVER] * 2
    assert all(row.ours.median > 0 for row in rows)


def test_all_sides_do_all_of_their_jobs(broker: Broker) -> None:
    before = {vhost["name"] for vhost in broker.management.get("vhosts")}
    rows = jobs_peers.measure(Brief(broker, quick=True))
    assert [row.peer_name for row in rows] == [jobs_peers.CELERY] * 2 + [jobs_peers.PROCRASTINATE] * 2
    assert {vhost["name"] for vhost in broker.management.get("vhosts")} == before
