"""What a daemon may still change once its lock is gone: what it had asked for before, and the broker held up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulation.checker import check
from simulation.model import Event, History, history
from simulation.scenario import Kind, scenario
from simulation.world import FOREIGN_QUEUE, NAMES, Outcome

DAEMON, QUEUE = "daemon a1.1", NAMES.request_queue("42")


@pytest.mark.parametrize(
    ("held_since", "held_until", "wrong"), [(1.0, 5.0, False), (3.0, 5.0, True), (1.0, 4.0, True), (None, None, True)]
)
def test_a_deletion_without_the_lock_is_wrong_unless_it_was_asked_for_before(
    held_since: float | None, held_until: float | None, wrong: bool
) -> None:
    found = [
        Event(0.5, history.DECLARED, DAEMON, NAMES.leader_queue),
        Event(2.0, history.DELETED, "operator", NAMES.leader_queue),
        Event(5.0, history.DELETED, DAEMON, QUEUE, detail=history.QueueAtDeletion(0, 0, 0, 0, (), lost=True)),
    ]
    assert is_wrong(found, held_since, held_until) is wrong


@pytest.mark.parametrize(("blocked", "unblocked", "wrong"), [(1.0, 5.1, False), (3.0, 5.1, True), (1.0, 4.0, True)])
def test_what_was_asked_for_in_an_alarm_and_done_at_its_end_was_asked_for_before(
    blocked: float, unblocked: float, wrong: bool
) -> None:
    found = [
        Event(0.5, history.DECLARED, DAEMON, NAMES.leader_queue),
        Event(blocked, history.BLOCKED, DAEMON),
        Event(2.0, history.DELETED, "operator", NAMES.leader_queue),
        Event(5.0, history.UNBOUND, DAEMON, QUEUE, detail=("x", "42")),
        Event(unblocked, history.UNBLOCKED, DAEMON),
    ]
    assert is_wrong(found) is wrong


def is_wrong(found: list[Event], held_since: float | None = None, held_until: float | None = None) -> bool:
    """Return whether the checker finds that something was done without the lock."""
    made = replace(scenario(2), kind=Kind.BAD_KEYS, faults=(), requests=())
    if held_since is not None and held_until is not None:
        found.append(Event(held_since, history.STALLED, DAEMON, QUEUE, detail=(2, 5.0)))
        found.append(Event(held_until, history.WENT_ON, DAEMON, QUEUE, detail=2))
    kept = History()
    # What the broker goes on with, it does in the same moment.
    kept.events += sorted(found, key=lambda event: (event.at, event.kind == history.DELETED))
    verdict = check(Outcome(made, kept, 100.0, True, {}, [FOREIGN_QUEUE], [], []))

    return any("without the lock" in text for _, text in verdict.broken)
