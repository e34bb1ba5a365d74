"""When an answer may come twice although nothing failed: its client lost its session before it acknowledged it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from osrdyne_protocol import statuses
from simulation.checker import check
from simulation.model import Event, History
from simulation.scenario import QUEUE, Kind, RequestPlan, scenario
from simulation.world import FOREIGN_QUEUE, Outcome

#: A seed of bad keys.
SEED = 2


@pytest.mark.parametrize(
    ("lost_at", "served", "wrong"), [(2.5, 1, False), (None, 1, True), (1.5, 1, True), (3.5, 1, True), (2.5, 2, True)]
)
def test_an_answer_comes_twice_only_to_a_client_that_lost_its_session_in_between(
    lost_at: float | None, served: int, wrong: bool
) -> None:
    made = scenario(SEED)
    plan = RequestPlan("r", 1.0, made.keys[0].key, reply=QUEUE)
    made = replace(made, kind=Kind.BAD_KEYS, faults=(), requests=(plan,))
    history = History()
    history.events += [
        Event(1.0, "request confirmed", "client 0", "r"),
        *[Event(1.9, "served", "worker 1", "r")] * served,
        Event(2.0, "answered", "client 0", "r", detail=statuses.OK),
        Event(3.0, "answered", "client 0", "r", detail=statuses.OK),
    ]
    if lost_at is not None:
        history.events.append(Event(lost_at, "client lost its session", "client 0"))
    verdict = check(Outcome(made, history, 100.0, True, {}, [FOREIGN_QUEUE], [], []))
    assert ((1, "r was served or answered twice, and nothing had failed") in verdict.broken) is wrong
