"""The lock: one leads, the others wait and take over, and the loss of the lock is reported."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from osrdyne import leader
from osrdyne_amqp.errors import BrokerTimeout, ConnectionLost, Locked
from tests.unit.stand_ins import NAMES, until

pytestmark = pytest.mark.looptime


class Lock:
    """The broker's side of the exclusive queue."""

    def __init__(self) -> None:
        self.holder: object = None
        self.on_cancel: list[Callable[[], None]] = []


class Connection:
    """A connection of one daemon."""

    def __init__(self, lock: Lock, error: Exception | None = None) -> None:
        self._lock, self.error = lock, error
        self.declared: list[dict[str, Any]] = []

    async def channel(self) -> Connection:
        if self.error is not None:
            raise self.error
        return self

    async def declare_queue(self, name: str, **options: Any) -> None:
        assert name == NAMES.leader_queue
        self.declared.append(options)
        if self._lock.holder not in (None, self):
            raise Locked
        self._lock.holder = self

    async def consume(self, queue: str, on_message: Any, *, on_cancel: Callable[[], None], **_: Any) -> str:
        self._lock.on_cancel.append(on_cancel)
        return "tag"

    def acquire(self) -> Any:
        given: Any = self
        return leader.acquire(given, NAMES)


async def test_the_first_leads_at_once_by_an_exclusive_queue() -> None:
    lock = Lock()
    connection = Connection(lock)
    await connection.acquire()
    assert lock.holder is connection
    (declared,) = connection.declared
    assert (declared["durable"], declared["exclusive"]) == (False, True)
    # What comes into the queue of the lock could end its connection
    assert declared["arguments"] == {"x-max-length": 0, "x-overflow": "reject-publish"}
    assert asyncio.get_running_loop().time() == 0.0


async def test_a_standby_waits_and_takes_over_within_seconds() -> None:
    lock = Lock()
    await Connection(lock).acquire()
    standby = Connection(lock)
    waiting = asyncio.ensure_future(standby.acquire())
    await asyncio.sleep(60.0)
    assert not waiting.done()
    assert 40 < len(standby.declared) < 90
    lock.holder = None
    await until(waiting.done, within=2.0)
    assert lock.holder is standby


async def test_of_several_standbys_one_takes_over() -> None:
    lock = Lock()
    await Connection(lock).acquire()
    waiting = [asyncio.ensure_future(Connection(lock).acquire()) for _ in range(5)]
    await asyncio.sleep(5.0)
    lock.holder = None
    await asyncio.sleep(5.0)
    assert sum(task.done() for task in waiting) == 1
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_lock_that_is_deleted_is_reported_as_lost() -> None:
    lock = Lock()
    lost = await Connection(lock).acquire()
    assert not lost.is_set()
    lock.on_cancel[0]()
    assert lost.is_set()


@pytest.mark.parametrize("error", [ConnectionLost(), BrokerTimeout("no answer")])
async def test_a_standby_whose_connection_ends_says_so(error: Exception) -> None:
    lock = Lock()
    await Connection(lock).acquire()
    standby = Connection(lock)
    waiting = asyncio.ensure_future(standby.acquire())
    await asyncio.sleep(5.0)
    standby.error = error
    with pytest.raises(type(error)):
        await waiting
