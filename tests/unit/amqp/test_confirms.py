"""Which publish a confirm or a return belongs to."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from osrdyne_amqp.channels.confirms import Confirms
from osrdyne_amqp.codec.frames import NO_PROPERTIES
from osrdyne_amqp.errors import ConnectionLost, Nacked, Returned
from osrdyne_protocol.headers import X_PUBLISH_ID

RETURN = Returned("no route", code=312)


def future() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


def published(confirms: Confirms, count: int) -> list[asyncio.Future[Any]]:
    futures = [future() for _ in range(count)]
    for confirm in futures:
        confirms.add(confirm)
    return futures


def values(**given: Any) -> dict[str, Any]:
    return {**NO_PROPERTIES, **given}


async def test_one_confirm_settles_one_publish() -> None:
    confirms = Confirms("1")
    first, second, third = published(confirms, 3)

    confirms.settle(2, False, True)

    assert second.result() is None
    assert not first.done()
    assert not third.done()
    assert len(confirms) == 2


async def test_a_multiple_confirm_settles_all_up_to_its_number_once() -> None:
    confirms = Confirms("1")
    futures = published(confirms, 6)

    confirms.settle(2, False, False)
    confirms.settle(4, True, True)
    confirms.settle(3, True, False)

    assert [future.done() for future in futures] == [True, True, True, True, False, False]
    assert isinstance(futures[1].exception(), Nacked)
    assert futures[0].result() is futures[2].result() is futures[3].result() is None


async def test_number_zero_settles_everything() -> None:
    confirms = Confirms("1")
    futures = published(confirms, 3)

    confirms.settle(0, True, True)

    assert all(future.done() for future in futures)


async def test_a_negative_confirm_fails_the_publish() -> None:
    confirms = Confirms("1")
    (only,) = published(confirms, 1)

    confirms.settle(1, True, False)

    with pytest.raises(Nacked):
        await only


async def test_publishes_without_a_future_are_counted() -> None:
    confirms = Confirms("1")
    confirms.add(None)
    waiting = future()
    confirms.add(waiting)

    confirms.settle(1, False, True)
    assert not waiting.done()
    confirms.settle(2, False, True)

    assert waiting.done()


async def test_a_confirm_for_a_caller_that_has_left_is_not_an_error() -> None:
    confirms = Confirms("1")
    (left,) = published(confirms, 1)
    left.cancel()

    confirms.settle(1, False, True)
    confirms.settle(1, False, True)

    assert left.cancelled()


async def test_a_return_finds_its_publish_by_correlation_id_and_the_confirm_after_it_changes_nothing() -> None:
    confirms = Confirms("1")
    waiting = future()
    key, sent = confirms.key(values(correlation_id="c1"), None)
    confirms.add(waiting, key)

    assert sent["headers"] is None
    assert confirms.returned(RETURN, None, "c1")
    confirms.settle(1, False, True)

    with pytest.raises(Returned):
        await waiting


async def test_a_return_of_a_final_publish_is_an_answer() -> None:
    confirms = Confirms("1")
    gone, there = future(), future()
    for waiting, correlation_id in ((gone, "c1"), (there, "c2")):
        key, _ = confirms.key(values(correlation_id=correlation_id), None)
        confirms.add(waiting, key, final=True)

    confirms.returned(RETURN, None, "c1")
    confirms.settle(2, True, True)

    assert gone.result() is False
    assert there.result() is True


async def test_two_publishes_with_the_same_correlation_id_are_distinguished() -> None:
    confirms = Confirms("1")
    first, second = future(), future()
    first_key, _ = confirms.key(values(correlation_id="same"), None)
    confirms.add(first, first_key)
    second_key, sent = confirms.key(values(correlation_id="same", headers={"a": 1}), None)
    confirms.add(second, second_key)

    assert confirms.returned(RETURN, sent["headers"], "same")

    assert not first.done()
    assert isinstance(second.exception(), Returned)
    assert sent["headers"]["a"] == 1
    assert confirms.returned(RETURN, None, "same")
    assert isinstance(first.exception(), Returned)


@pytest.mark.parametrize("correlation_id", [None, "c"])
async def test_a_publish_id_of_a_peer_is_never_taken_for_ours(correlation_id: str | None) -> None:
    """A forwarded message may carry the header that some other publish of ours is found by."""
    confirms = Confirms("1")
    ours, forwarded = future(), future()
    key, sent = confirms.key(values(), None)
    confirms.add(ours, key)
    stolen = sent["headers"][X_PUBLISH_ID]

    key, sent = confirms.key(values(headers={X_PUBLISH_ID: stolen}, correlation_id=correlation_id), None)
    confirms.add(forwarded, key)
    assert confirms.returned(RETURN, sent["headers"], correlation_id)

    assert not ours.done()
    assert isinstance(forwarded.exception(), Returned)


async def test_a_publish_id_in_flight_is_refused() -> None:
    confirms = Confirms("1")
    key, sent = confirms.key(values(), "mine")
    confirms.add(future(), key)

    assert sent["headers"] == {X_PUBLISH_ID: "mine"}
    with pytest.raises(ValueError, match="already in flight"):
        confirms.key(values(), "mine")


@pytest.mark.parametrize(
    "header", [None, {}, {X_PUBLISH_ID: ["a"]}, {X_PUBLISH_ID: {}}, {X_PUBLISH_ID: 7}, {X_PUBLISH_ID: "?"}]
)
@pytest.mark.parametrize("correlation_id", [None, "?", b"\xff"])
async def test_a_return_of_an_unknown_message_is_left_to_others(header: Any, correlation_id: Any) -> None:
    confirms = Confirms("1")
    key, _ = confirms.key(values(correlation_id="c1"), None)
    waiting = future()
    confirms.add(waiting, key)

    assert not confirms.returned(RETURN, header, correlation_id)
    assert not waiting.done()


async def test_the_end_of_the_channel_fails_every_publish_with_an_exception_of_its_own() -> None:
    confirms = Confirms("1")
    first, second, left = published(confirms, 3)
    left.cancel()

    confirms.fail(ConnectionLost("gone", code=320))

    errors = [first.exception(), second.exception()]
    assert [str(error) for error in errors] == ["gone", "gone"]
    assert [getattr(error, "code", None) for error in errors] == [320, 320]
    assert errors[0] is not errors[1]
    assert len(confirms) == 0


async def test_long_runs_leave_nothing_behind() -> None:
    confirms = Confirms("1")
    for number in range(1, 2001):
        key, _ = confirms.key(values(correlation_id=str(number)), None)
        confirms.add(future(), key)
        if number % 64 == 0:
            confirms.settle(number, True, True)
    confirms.settle(0, True, True)

    assert len(confirms) == 0
    assert confirms.key(values(correlation_id="1"), None)[0] == "1"
