"""What tasks share: a value a key, sets of changed keys, timers."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osrdyne.base.changes import ChangeReader, Changes, KeyedValues, Timers, seconds_until
from tests.unit.stand_ins import follower


async def test_waiting_returns_at_once_when_the_value_holds() -> None:
    values = KeyedValues[int]()
    values["42"] = 3
    assert await values.wait("42", lambda value: value == 3) == 3


async def test_waiting_ends_with_the_value_that_holds_and_not_before() -> None:
    values = KeyedValues[int]()
    waiting = asyncio.ensure_future(values.wait("42", lambda value: value >= 2))
    for value in (0, 1):
        await asyncio.sleep(0)
        values["42"] = value
        values["7"] = 5
        await asyncio.sleep(0)
        assert not waiting.done()
    values["42"] = 2
    assert await waiting == 2


async def test_a_value_that_holds_no_longer_when_the_waiter_looks_does_not_count() -> None:
    values = KeyedValues[int]()
    waiting = asyncio.ensure_future(values.wait("42", lambda value: value == 1))
    await asyncio.sleep(0)
    values["42"] = 1
    values["42"] = 0
    await asyncio.sleep(0.01)
    assert not waiting.done()
    values["42"] = 1
    assert await waiting == 1


async def test_a_waiter_that_gives_up_leaves_nothing_behind() -> None:
    values = KeyedValues[int]()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            await values.wait("42", bool)
    assert not values._waiters


async def test_every_reader_gets_every_changed_key_once_and_in_order() -> None:
    changes = Changes()
    first, second = follower(changes), follower(changes)
    for key in ("b", "a", "b"):
        changes.add(key)
    assert await first.take(None) == ["b", "a"]
    changes.add("c")
    assert await first.take(None) == ["c"]
    assert await second.take(None) == ["b", "a", "c"]


async def test_a_reader_gets_nothing_more_once_it_no_longer_follows() -> None:
    changes = Changes()
    with ChangeReader().following(changes) as reader:
        pass
    changes.add("42")
    assert await reader.take(0.001) == []


@pytest.mark.looptime
async def test_taking_waits_for_a_change_or_for_the_time_given() -> None:
    loop, reader = asyncio.get_running_loop(), ChangeReader()
    assert await reader.take(5.0) == []
    assert loop.time() == 5.0
    loop.call_later(2.0, reader.add, "42")
    assert await reader.take(None) == ["42"]
    assert loop.time() == 7.0


@pytest.mark.looptime
async def test_a_wait_shorter_than_the_clock_can_show_still_lets_time_pass() -> None:
    loop, reader = asyncio.get_running_loop(), ChangeReader()
    await asyncio.sleep(23.506)
    assert await reader.take(seconds_until(loop.time() + 1e-13, loop.time())) == []
    assert loop.time() > 23.506


def test_a_later_timer_replaces_the_earlier_one() -> None:
    timers = Timers()
    timers.at("42", 5.0)
    timers.at("42", 8.0)
    assert timers.next() == 8.0
    assert list(timers.due(7.9)) == []
    assert list(timers.due(8.0)) == ["42"]
    assert timers.next() is None


def test_the_same_timer_again_takes_no_more_room() -> None:
    timers = Timers()
    for _ in range(100):
        timers.at("42", 5.0)
    assert len(timers._heap) == 1
    assert list(timers.due(5.0)) == ["42"]


@given(st.lists(st.tuples(st.booleans(), st.sampled_from("abc"), st.integers(0, 20)), max_size=60))
def test_timers_agree_with_a_naive_model(steps: list[tuple[bool, str, int]]) -> None:
    timers, naive, now = Timers(), dict[str, float](), 0
    for is_set, key, amount in steps:
        if is_set:
            timers.at(key, now + amount)
            naive[key] = now + amount
        else:
            now += amount
            expected = sorted((when, key) for key, when in naive.items() if when <= now)
            assert sorted((naive[key], key) for key in timers.due(now)) == expected
            for _, due_key in expected:
                del naive[due_key]
        assert timers.next() == min(naive.values(), default=None)
