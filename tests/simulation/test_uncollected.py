"""When a call of the relay may end uncollected although nothing goes wrong: while all workers are busy."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from simulation.relay.checker import check
from simulation.relay.processes import WORKERS
from simulation.relay.scenario import SERVERS, CallPlan, Kind, scenario
from simulation.relay.world import CallResult, Run, World

#: A seed of the kind in which nothing goes wrong.
QUIET = 7
CALL = CallPlan(99, 50.0, 0, "north", 1.0, 10.0, None, None, False, False, False)


@pytest.mark.parametrize(
    ("free", "wrong"), [((), False), ((49.0, 50.5), False), ((52.0, 53.5), True), ((40.0, 70.0), True)]
)
def test_a_call_may_be_uncollected_only_while_no_worker_is_free(
    free: tuple[float, float] | tuple[()], wrong: bool
) -> None:
    plans = [replace(CALL, number=number, at=0.0) for number in range(WORKERS * SERVERS)]
    planned = scenario(QUIET)
    assert planned.kind is Kind.QUIET
    world = World(replace(planned, calls=(*plans, CALL)), random.Random(1))
    world.trace.append(f"call {CALL.number} begins")
    world.runs = [Run(plan.number, "server 0", 1.0, ended=100.0) for plan in plans]
    if free:
        # One worker ends its work, and gets the next request later.
        world.runs[0].ended = free[0]
        world.runs.append(Run(plans[0].number, "server 0", free[1], ended=100.0))
    world.ended[CALL.number] = CallResult(CALL.at + CALL.pickup_timeout, "NotCollected")
    said = [text for text in check(world).broken if text.startswith(f"call {CALL.number} ")]
    assert bool(said) is wrong
