"""What a driver has seen stays until the group loop reads it. Under virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from osrdyne.drivers.base import Change, How, WorkerEnd
from osrdyne.drivers.unread import UnreadChanges
from osrdyne.errors import DriverError, EngineAway

pytestmark = pytest.mark.looptime


async def all_of(reading: AsyncIterator[Change]) -> list[Change]:
    return [change async for change in reading]


async def test_changes_of_a_group_that_were_not_read_are_one_and_the_groups_keep_their_order() -> None:
    unread = UnreadChanges()
    for key in ("a", "b", "a"):
        unread.tell(Change(key))

    assert await all_of(unread.read()) == [Change("a"), Change("b")]


async def test_a_change_without_an_error_does_not_replace_an_unread_error_and_a_later_error_does() -> None:
    unread = UnreadChanges()
    unread.tell(Change("a", "exit status 1"))
    unread.tell(Change("a"))
    assert await all_of(unread.read()) == [Change("a", "exit status 1")]

    for error in (None, "exit status 1", "exit status 2"):
        unread.tell(Change("a", error))
    assert await all_of(unread.read()) == [Change("a", "exit status 2")]


async def test_a_start_that_was_refused_is_an_end_but_not_where_the_engine_was_away() -> None:
    unread = UnreadChanges()
    unread.refused("a", DriverError("no such image"))
    unread.refused("b", EngineAway("no answer"))
    assert await all_of(unread.read()) == [
        Change("a", "no such image", WorkerEnd(How.NO_START)),
        Change("b", "no answer"),
    ]


async def test_each_end_of_a_worker_is_read_in_its_order_beside_other_changes() -> None:
    unread = UnreadChanges()
    died, again = (Change("a", f"exit {code}", WorkerEnd(How.EXIT, code)) for code in (1, 2))
    for change in (Change("a"), died, Change("a"), Change("a", "refused"), again, Change("a")):
        unread.tell(change)

    assert await all_of(unread.read()) == [Change("a"), died, Change("a", "refused"), again]


async def test_of_many_ends_of_one_group_the_last_are_read_and_a_reader_may_leave_in_between() -> None:
    unread = UnreadChanges()
    ends = [Change("a", None, WorkerEnd(How.EXIT, code)) for code in range(15)]
    for change in ends:
        unread.tell(change)

    assert await anext(unread.read()) == ends[5]
    unread.tell(Change("a"))
    assert await all_of(unread.read()) == ends[6:]


async def test_a_reader_waits_for_changes_and_what_it_did_not_take_is_there_for_the_next() -> None:
    unread = UnreadChanges()
    reading = asyncio.ensure_future(anext(unread.read()))
    await asyncio.sleep(3600)
    assert not reading.done()

    unread.tell(Change("a"))
    unread.tell(Change("b"))
    assert await reading == Change("a")
    unread.tell(Change("c"))
    assert await all_of(unread.read()) == [Change("b"), Change("c")]


async def test_a_gap_is_raised_once_after_the_unread_changes() -> None:
    unread = UnreadChanges()
    unread.tell(Change("a"))
    unread.lose("the engine has restarted")
    reading = unread.read()
    assert await anext(reading) == Change("a")
    with pytest.raises(DriverError, match="the engine has restarted"):
        await anext(reading)

    unread.tell(Change("b"))
    assert await all_of(unread.read()) == [Change("b")]


async def test_the_end_lets_a_reader_go() -> None:
    unread = UnreadChanges()
    reading = asyncio.ensure_future(all_of(unread.read()))
    await asyncio.sleep(0)
    unread.end()

    assert await reading == []
    assert unread.has_ended()
