"""One action at a time for each key, all keys at once, and a look whenever there may be something to do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from osrdyne.base.changes import Changes
from osrdyne.reconcile.keyed_loop import KeyedLoop

pytestmark = pytest.mark.looptime


class Looks:
    """Notes which keys were looked at, and when; begins an action of `seconds` where there is one for the key."""

    def __init__(self, *facts: Changes, **seconds: float) -> None:
        self.clock = asyncio.get_running_loop().time
        self.seconds = seconds
        self.loop = KeyedLoop(self.clock, facts)
        self.seen: list[tuple[float, str]] = []
        self.rounds = 0

    def look(self, key: str) -> None:
        self.seen.append((round(self.clock(), 1), key))
        if (seconds := self.seconds.pop(key, None)) is not None:
            self.loop.begin(key, lambda: asyncio.sleep(seconds), "test")

    def count(self) -> None:
        self.rounds += 1


@asynccontextmanager
async def running(looks: Looks, *keys: str) -> AsyncIterator[None]:
    task = asyncio.create_task(looks.loop.run(looks.look, keys=keys, afterwards=looks.count))
    await asyncio.sleep(0)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_key_is_looked_at_first_when_it_changes_and_when_its_time_has_come() -> None:
    changes, others = Changes(), Changes()
    looks = Looks(changes, others)
    async with running(looks, "first"):
        await asyncio.sleep(1)
        changes.add("changed")
        others.add("also")
        looks.loop.look_at("later", looks.clock() + 5)
        await asyncio.sleep(10)

    assert [key for _, key in looks.seen] == ["first", "changed", "also", "later"]
    assert looks.seen[-1][0] - looks.seen[-2][0] == pytest.approx(5, abs=0.2)


async def test_a_key_with_an_action_under_way_is_looked_at_when_that_ends_and_others_meanwhile() -> None:
    changes = Changes()
    looks = Looks(changes, slow=10.0)
    async with running(looks, "slow"):
        await asyncio.sleep(1)
        assert looks.loop.is_busy("slow")
        changes.add("slow")
        changes.add("quick")
        await asyncio.sleep(20)
        assert not looks.loop.is_busy("slow")

    assert [key for _, key in looks.seen] == ["slow", "quick", "slow"]
    assert looks.seen[2][0] - looks.seen[0][0] == pytest.approx(10, abs=0.2)


async def test_an_action_that_ends_leaves_its_key_for_another_look() -> None:
    looks = Looks(a=0.0)
    async with running(looks, "a"):
        await asyncio.sleep(1)

    assert [key for _, key in looks.seen] == ["a", "a"]
    assert looks.rounds == 2


async def test_a_loop_that_ends_follows_nothing_any_more() -> None:
    changes = Changes()
    async with running(Looks(changes)):
        assert changes.readers

    assert changes.readers == []
