"""Runs in which the broker loses queues: what they are, and what the checker says of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice

import pytest

from simulation.checker import check
from simulation.model import history
from simulation.scenario import YOUNG_SECONDS, Kind, Scenario, scenario
from simulation.world import NAMES, simulate


def runs(version: str) -> Iterator[Scenario]:
    """Every such run of a version."""
    return (run_ for run_ in map(scenario, count(1)) if run_.kind is Kind.LOST and run_.version == version)


@pytest.mark.parametrize("version", ["4.0", "4.3"])
def test_the_broker_is_killed_once_and_loses_young_request_queues_only(version: str) -> None:
    lost = set()
    for run_ in islice(runs(version), 8):
        events = simulate(run_).history.events
        (killed,) = [event for event in events if event.kind == history.BROKER_STOPPED]
        assert killed.detail == history.KILLED
        made = {event.place: event.at for event in events if event.kind == history.DECLARED and event.at <= killed.at}
        gone = {event.place for event in events if event.kind == history.LOST_BY_BROKER}
        assert all(killed.at - made[place] <= YOUNG_SECONDS for place in gone)
        assert not gone & {NAMES.request_queue(plan.key) for plan in run_.keys if plan.kept}
        lost |= gone

    assert len(lost) > 4
    assert all(place.startswith(NAMES.request_queue_prefix) for place in lost)


def test_what_the_broker_lost_is_counted_apart_and_all_else_is_answered() -> None:
    verdicts = [check(simulate(run_)) for version in ("4.0", "4.3") for run_ in islice(runs(version), 8)]

    assert [verdict.findings() for verdict in verdicts if not verdict.good] == []
    assert sum(len(verdict.lost_by_broker) for verdict in verdicts) > 4


def test_the_same_seed_is_the_same_run() -> None:
    for version in ("4.0", "4.3"):
        one = next(runs(version))
        first, second = (list(simulate(one).history.lines()) for _ in range(2))
        assert first == second


def test_storms_lose_queues_too() -> None:
    storms = [run_ for run_ in map(scenario, range(300)) if run_.kind is Kind.STORM]
    assert any(fault.what == "queues lost" for storm in storms for fault in storm.faults)
    assert any(fault.what == "queues uncounted" for storm in storms for fault in storm.faults)
