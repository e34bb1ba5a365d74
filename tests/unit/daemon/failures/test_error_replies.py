"""Error replies: a refusal that passes costs no caller its answer, and many refusals delay no other request."""

from __future__ import annotations

import asyncio

import pytest

from osrdyne.failures.error_replies import ErrorReplies
from osrdyne.metrics import Metrics
from osrdyne_amqp import Message, Properties
from osrdyne_amqp.errors import BrokerTimeout, Nacked
from osrdyne_protocol import headers, statuses
from tests.unit.stand_ins import A_CALLER, NAMES, StandInPublisher

pytestmark = pytest.mark.looptime


def request(reply_to: str = A_CALLER) -> Message:
    return Message(b"body", NAMES.request_exchange, "42", Properties(correlation_id="7", reply_to=reply_to), 1, False)


def answerer_on(publisher: StandInPublisher) -> ErrorReplies:
    return ErrorReplies(NAMES, publisher, Metrics())


@pytest.mark.parametrize("error", [Nacked(), BrokerTimeout("no confirm")])
async def test_a_reply_that_the_broker_refuses_once_is_sent_again(error: Exception) -> None:
    publisher = StandInPublisher()
    publisher.answers = [error, error, None]
    assert await answerer_on(publisher).settle(request(), status=statuses.EXPIRED, reason="too late")
    assert [sent.routing_key for sent in publisher.sent] == [A_CALLER] * 3
    assert publisher.confirmed[-1].properties.headers[headers.X_STATUS] == statuses.EXPIRED


async def test_a_reply_queue_that_refuses_for_long_counts_as_no_caller_and_the_request_is_kept() -> None:
    publisher = StandInPublisher()
    publisher.refusing["", A_CALLER] = Nacked()
    assert await answerer_on(publisher).settle(request(), status=statuses.EXPIRED, reason="too late")
    assert 15.0 <= asyncio.get_running_loop().time() < 25.0
    assert publisher.confirmed[-1].routing_key == NAMES.unanswered_queue


async def test_of_many_refused_replies_only_some_are_tried_again() -> None:
    publisher = StandInPublisher()
    publisher.refusing["", A_CALLER] = Nacked()
    error_replies = answerer_on(publisher)
    async with asyncio.TaskGroup() as tasks:
        for _ in range(200):
            tasks.create_task(error_replies.settle(request(), status=statuses.EXPIRED, reason="too late"))
        await asyncio.sleep(0.2)
        kept = len(publisher.sent_to("", NAMES.unanswered_queue))
        assert kept == 200 - 64
