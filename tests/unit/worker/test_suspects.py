"""When a worker runs requests with which workers have ended, and in which order."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from osrdyne_amqp import Message, Properties
from osrdyne_worker.session import Delivery, WorkerSession
from osrdyne_worker.suspects import (
    LONGEST_WAIT_SECONDS,
    QUIET_SECONDS,
    Step,
    Suspects,
    WorkInHand,
    failures,
    latest,
    order,
    plan,
)

#: A suspect in hand, and no other request for a while.
ALONE = WorkInHand(
    takes=True,
    one_by_one=False,
    passed=False,
    running=0,
    suspects=1,
    full=False,
    moved_at=0.0,
    due=LONGEST_WAIT_SECONDS,
    back_at=100.0,
)


@pytest.mark.parametrize(
    ("redelivered", "given", "count"),
    [
        (True, {"x-delivery-count": 2}, 2),
        (False, {"x-delivery-count": 2}, 0),  # a client wrote it
        (True, {"x-acquired-count": 2}, 0),  # a worker that stopped gave it back
        (True, {"x-delivery-count": "2"}, 0),
        (True, None, 0),
    ],
)
def test_what_the_broker_counts_as_failed_is_a_suspect(redelivered: bool, given: Any, count: int) -> None:
    message = Message(b"", "", "42", Properties(headers=given), 1, redelivered)
    assert failures(message) == count


@pytest.mark.parametrize(
    ("changes", "now", "step"),
    [
        # While others come, it waits, but not for ever
        ({}, QUIET_SECONDS / 2, Step.NOTHING),
        ({}, QUIET_SECONDS, Step.STOP),
        ({"running": 1}, QUIET_SECONDS, Step.NOTHING),
        ({"running": 1}, LONGEST_WAIT_SECONDS, Step.STOP),
        ({"suspects": 0}, LONGEST_WAIT_SECONDS, Step.NOTHING),
        # Suspects take no place of others
        ({"full": True}, 0.0, Step.RENEW),
        ({"full": True}, QUIET_SECONDS, Step.RENEW),
        ({"full": True}, LONGEST_WAIT_SECONDS, Step.STOP),
        # It is run once all others are done, one after the other
        ({"takes": False, "running": 2}, 1.0, Step.NOTHING),
        ({"takes": False}, 1.0, Step.RUN),
        ({"takes": False, "suspects": 0, "running": 1}, 1.0, Step.NOTHING),
        ({"takes": False, "suspects": 0}, 1.0, Step.RESUME),
        # What comes one by one is run at once, until one comes that is not a suspect
        ({"one_by_one": True, "full": True}, 0.0, Step.RUN),
        ({"one_by_one": True, "full": True, "running": 1}, 0.0, Step.NOTHING),
        ({"one_by_one": True, "suspects": 0}, 50.0, Step.NOTHING),
        ({"one_by_one": True, "suspects": 0, "passed": True, "running": 1}, 0.0, Step.WIDEN),
        # The broker does not take it back
        ({"takes": False, "running": 1}, 100.0, Step.GIVE_BACK),
        ({"running": 1}, 100.0, Step.GIVE_BACK),
        ({"suspects": 0, "running": 1}, 100.0, Step.NOTHING),
    ],
)
def test_a_suspect_is_run_behind_all_others_and_alone(changes: dict[str, Any], now: float, step: Step) -> None:
    assert plan(replace(ALONE, **changes), now) is step


def test_others_go_first_for_some_time_only_and_for_less_before_a_deadline() -> None:
    assert latest(5.0, None) == 15.0
    assert latest(5.0, 1000.0) == 15.0
    assert latest(5.0, 4.0) == 7.0
    assert latest(5.0, -4.0) == 5.0


def test_of_those_that_failed_once_the_last_that_was_delivered_comes_first_and_else_the_first() -> None:
    assert order([1, 1, 1]) == [2, 1, 0]
    # What ended the last worker came back last. On RabbitMQ 4.0 it may have failed less often than what was given back
    assert order([3, 3, 2]) == [0, 1, 2]
    assert order([]) == []


@pytest.mark.parametrize("counts_returns", [True, False])
@pytest.mark.parametrize("first", range(8))
@pytest.mark.parametrize("second", [None, *range(8)])
def test_of_eight_requests_in_hand_only_those_that_end_workers_reach_the_limit(
    first: int, second: int | None, counts_returns: bool
) -> None:
    """RabbitMQ 4.0 counts what a worker returns, and 4.3 does not. What was returned last is redelivered last."""
    bad = {first, second}
    queue = dict.fromkeys(range(8), 1)
    most = 1
    while set(queue) - bad:
        # A worker has all in hand, and returns all but one
        names = [[*queue][place] for place in order([*queue.values()])]
        queue = {name: queue[name] + (counts_returns and name != names[0]) for name in names}
        # It runs one after the other, until one ends it
        while queue:
            name, count = next(iter(queue.items()))
            del queue[name]
            if name in bad:
                queue[name] = count + 1
                break
        most = max(most, *(count for name, count in queue.items() if name not in bad), 1)
    assert most <= (1 + len(bad - {None}) if counts_returns else 1)


@dataclass
class LostWhileCancelling:
    """A session that is lost when its consumer is cancelled. The real one only logs that, too."""

    is_open: bool = True
    given_back: list[int] = field(default_factory=list)

    async def stop_consuming(self) -> None:
        self.is_open = False

    def give_back(self, tag: int) -> None:
        if self.is_open:
            self.given_back.append(tag)


async def test_a_suspect_of_a_lost_session_is_not_begun() -> None:
    session = cast("WorkerSession", LostWhileCancelling())
    suspects = Suspects(8, None)
    begun: list[Delivery] = []
    for tag in range(2):
        message = Message(b"", "", "42", Properties(headers={"x-delivery-count": 1}), tag, redelivered=True)
        # Its deadline has passed, so that it is due at once
        suspects.hold(Delivery(session, message), 0.0)
    await suspects.act(session, lambda: len(begun), lambda delivery, at: begun.append(delivery), begun.append)
    suspects.close()
    assert not begun
