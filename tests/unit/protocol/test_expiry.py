"""Where a request's time ran out, and that every reply that says `expired` says so."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from osrdyne.failures.dead_letter_responder import DeadLetterResponder
from osrdyne.failures.dead_letter_rules import entered
from osrdyne.failures.error_replies import ErrorReplies
from osrdyne.metrics import Metrics
from osrdyne.state.pool import PoolState
from osrdyne.state.values import Attempt, KeyActivity, QueueTotals
from osrdyne_amqp import Message, Properties
from osrdyne_client.errors import Expired
from osrdyne_client.replies import read
from osrdyne_protocol import events, expiry, headers
from tests.unit.stand_ins import A_CALLER, NAMES, SettledDeliveries, StandInLifecycle, StandInPublisher, state_of, until

#: Wall clock of the tests in seconds, and the time to live of request queues.
NOW, TTL = 1_700_000_000, 60.0


@pytest.mark.parametrize(
    ("entered", "last_life", "group_started", "stage"),
    [
        (10.0, None, None, expiry.START),
        (10.0, None, 12.0, expiry.START),
        (10.0, 9.0, None, expiry.START),  # of a group that has ended since
        (10.0, 9.0, 11.0, expiry.START),
        (10.0, 11.0, None, expiry.QUEUE),
        (10.0, 6.0, 5.0, expiry.QUEUE),  # of the group that still runs, before the request came
        (10.0, 11.0, 20.0, expiry.QUEUE),  # of a group that was started again since
        (None, 6.0, 5.0, expiry.QUEUE),
        (None, 4.0, 5.0, expiry.START),
        (None, 4.0, None, expiry.QUEUE),
    ],
)
def test_workers_that_showed_life_make_the_difference(
    entered: float | None, last_life: float | None, group_started: float | None, stage: str
) -> None:
    found = expiry.in_request_queue(entered=entered, last_life=last_life, group_started=group_started)
    assert found == stage


def letter(
    queue: str = "core-req-42", *, death: dict[str, Any] | None = None, more: Mapping[str, object] | None = None
) -> Message:
    given: dict[str, Any] = {
        headers.X_FIRST_DEATH_REASON: "expired",
        headers.X_FIRST_DEATH_QUEUE: queue,
        **(more or {}),
    }
    if death is not None:
        given["x-death"] = [death]
    properties = Properties(headers=given, reply_to=A_CALLER, correlation_id="7")
    return Message(b"", "core-dl-xchg", "42", properties, 1, redelivered=False)


def test_a_request_entered_its_queue_when_it_was_first_seen_or_its_lifetime_before_it_died() -> None:
    died = {"time": datetime.fromtimestamp(NOW, UTC), "reason": "expired"}
    assert entered(letter(death=died), message_ttl=TTL) == NOW - TTL
    assert entered(letter(death=died | {"original-expiration": "5000"}), message_ttl=TTL) == NOW - 5
    assert entered(letter(death=died | {"original-expiration": "500000"}), message_ttl=TTL) == NOW - TTL
    seen = {headers.X_FIRST_SEEN: (NOW - 20) * 1000}
    assert entered(letter(death=died, more=seen), message_ttl=TTL) == NOW - 20
    assert entered(letter(), message_ttl=TTL) is None
    assert entered(letter(death={"time": "then"}), message_ttl=TTL) is None


async def expired_stage(message: Message, prepare: Any, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """Return the stage in the reply to the caller of a letter, 100 s after the loop began."""
    monkeypatch.setattr(events, "wall_ms", lambda: NOW * 1000)
    await asyncio.sleep(100)
    state, publisher = state_of(), StandInPublisher()
    prepare(state)
    metrics, settled = Metrics(), SettledDeliveries()
    async with asyncio.TaskGroup() as tasks:
        responder = DeadLetterResponder(
            state=state,
            deliveries=settled,
            publisher=publisher,
            error_replies=ErrorReplies(NAMES, publisher, metrics),
            lifecycle=StandInLifecycle(),
            metrics=metrics,
            tasks=tasks,
            prefetch=8,
            message_ttl=TTL,
            worker_reasons=True,
        )
        responder.on_message(message)
        await until(lambda: settled.tags, within=5.0)
    (reply,) = publisher.sent_to("", A_CALLER)
    return headers.text(reply.properties.headers.get(headers.X_EXPIRED_AT))


def nothing(_: PoolState) -> None:
    """No worker was ever heard of."""


def alive_before(state: PoolState) -> None:
    state.groups.attempts["42"] = Attempt(started_at=10.0)
    state.activity["42"] = KeyActivity(last_event=11.0)


def consuming(state: PoolState) -> None:
    state.counts.totals["42"] = QueueTotals(ready=1, unacknowledged=1, consumers=1, bindings=1)


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("message", "prepare", "stage"),
    [
        (letter("core-orphan"), consuming, expiry.ORPHAN),
        (letter(), nothing, expiry.START),
        (letter(), alive_before, expiry.QUEUE),
        (letter(), consuming, expiry.QUEUE),
        (letter(more={headers.X_FIRST_SEEN: (NOW - 20) * 1000}), nothing, expiry.START),
    ],
)
async def test_the_responder_says_where_a_request_expired(
    message: Message, prepare: Any, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await expired_stage(message, prepare, monkeypatch) == stage


@pytest.mark.looptime
async def test_the_time_of_a_message_is_compared_on_the_clock_of_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, float | None] = {}

    def note(**times: float | None) -> str:
        given.update(times)
        return expiry.QUEUE

    monkeypatch.setattr(expiry, "in_request_queue", note)
    # Given a request that was first seen 20 s ago, when the workers' clock shows 100 s
    await expired_stage(letter(more={headers.X_FIRST_SEEN: (NOW - 20) * 1000}), alive_before, monkeypatch)
    assert given == {"entered": pytest.approx(80.0, abs=0.1), "last_life": 11.0, "group_started": 10.0}
    await expired_stage(letter(), nothing, monkeypatch)
    assert given == {"entered": None, "last_life": None, "group_started": None}


@pytest.mark.looptime
async def test_only_expired_requests_have_a_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await expired_stage(letter(more={headers.X_FIRST_DEATH_REASON: "maxlen"}), nothing, monkeypatch) is None


@pytest.mark.parametrize(("value", "stage"), [(b"orphan", "orphan"), ("queue", "queue"), (7, None), (None, None)])
def test_the_clients_error_says_the_stage(value: object, stage: str | None) -> None:
    given = {"x-status": "expired"} | ({} if value is None else {"x-expired-at": value})
    error = read(Message(b"", "", "", Properties(headers=given, correlation_id="1"), 1, redelivered=False))
    assert isinstance(error, Expired)
    assert error.stage == stage
    words = [said for said in expiry.STAGES.values() if said in str(error)]
    assert words == ([] if stage is None else [expiry.STAGES[stage]])
