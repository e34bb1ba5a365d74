"""The reason of a worker's end reaches callers and events whole, however long the path of its log is."""

from __future__ import annotations

import math
from typing import Any

import pytest

from osrdyne.broker.lifecycle_events import LifecycleEvents
from osrdyne.failures.error_replies import ErrorReplies
from osrdyne.intake import orphan_rules
from osrdyne.metrics import Metrics
from osrdyne.state.values import Attempt
from osrdyne.state.worker_ends import LONGEST_REASON
from osrdyne_protocol import events, headers
from tests.unit.daemon.failures.test_error_replies import request
from tests.unit.stand_ins import NAMES, StandInPublisher

pytestmark = pytest.mark.looptime


class EventsSent:
    """An event line that keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def send(self, key: str, given: list[dict[str, Any]]) -> None:
        self.sent += given


async def test_the_longest_reason_of_a_worker_reaches_its_caller_and_its_event_whole() -> None:
    error = "x" * (LONGEST_REASON - 1) + "!"
    answer = orphan_rules.start_failed(Attempt(unstarted=10**6, error=error), math.inf, with_reason=True)
    publisher, line = StandInPublisher(), EventsSent()

    await ErrorReplies(NAMES, publisher, Metrics()).settle(request(), status=answer.status, reason=answer.reason)
    LifecycleEvents(line, "daemon").record(events.DEAD_LETTERED, "42", reason=answer.reason)  # type: ignore[arg-type]

    assert answer.reason.endswith(error)
    assert publisher.confirmed[-1].properties.headers[headers.X_REASON] == answer.reason
    assert line.sent[-1][headers.X_REASON] == answer.reason
