"""Waits do not count the time in which the loop stood still: what came meanwhile has not been read yet."""

from __future__ import annotations

import asyncio
import time

import pytest

from osrdyne_amqp import awake


def answer_some_turns_later(future: asyncio.Future[str], turns: int = 3) -> None:
    """As what a socket has is read: piece by piece, one in each turn of the loop."""
    if turns:
        asyncio.get_running_loop().call_soon(answer_some_turns_later, future, turns - 1)
    elif not future.done():
        future.set_result("answer")


def stand_still(future: asyncio.Future[str]) -> None:
    time.sleep(0.3)
    answer_some_turns_later(future)


async def test_an_answer_that_came_while_the_loop_stood_still_is_taken() -> None:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[str] = loop.create_future()
    loop.call_soon(stand_still, future)

    assert await awake.result_of(future, 0.2) == "answer"


async def test_a_timer_is_not_due_when_the_loop_begins_to_turn_again() -> None:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[str] = loop.create_future()
    called: list[bool] = []
    timer = awake.Timer(0.2, lambda: called.append(future.done()))
    loop.call_soon(stand_still, future)

    assert await future == "answer"
    assert called == []
    timer.cancel()


@pytest.mark.looptime
async def test_a_wait_without_an_answer_ends_and_its_future_with_it() -> None:
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    with pytest.raises(awake.NotInTime):
        await awake.result_of(future, 10.0)

    assert asyncio.get_running_loop().time() == pytest.approx(10.0)
    assert future.cancelled()


@pytest.mark.looptime
async def test_a_pause_does_not_count() -> None:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[str] = loop.create_future()
    loop.call_later(100.0, future.set_result, "answer")

    assert await awake.result_of(future, 10.0, paused=lambda: loop.time() < 95.0) == "answer"


async def test_an_error_of_the_answer_is_raised_as_it_is() -> None:
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    future.set_exception(TimeoutError("its own"))

    with pytest.raises(TimeoutError, match="its own"):
        await awake.result_of(future, 10.0)


@pytest.mark.looptime
async def test_who_is_cancelled_waits_for_no_answer() -> None:
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(awake.result_of(future, 10.0))
    await asyncio.sleep(1.0)
    waiting.cancel()
    await asyncio.wait((waiting,))

    assert waiting.cancelled()
    assert future.cancelled()


@pytest.mark.looptime
async def test_a_timer_calls_once_and_not_after_it_was_cancelled() -> None:
    called: list[float] = []
    awake.Timer(10.0, lambda: called.append(asyncio.get_running_loop().time()))
    other = awake.Timer(20.0, lambda: called.append(-1.0))
    await asyncio.sleep(15.0)
    other.cancel()
    await asyncio.sleep(100.0)

    assert called == pytest.approx([10.0])
