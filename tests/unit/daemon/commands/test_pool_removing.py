"""`osrdyne pool remove` beside messages that come while it looks: nothing is lost, and the pool stays whole."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from osrdyne.broker.management_api import ManagementApi
from osrdyne.commands.pool.removing import remove
from osrdyne.errors import ManagementError
from osrdyne_pool.settings import PoolSettings
from osrdyne_pool.topology import Binding, Topology, topology
from osrdyne_protocol.names import PoolNames
from osrdyne_runtime.console.output import CannotAsk

INTERVAL = 7.5
DECLARED = replace(topology(PoolSettings("core")), users=(), permissions=(), vhost_limits={})
LIVE = replace(DECLARED, bindings=(*DECLARED.bindings, Binding("core-req-xchg", "core-req-LAX", "LAX")))


class Broker(ManagementApi):
    """A broker that shows a message some seconds after it has it, and notes what is sent."""

    def __init__(
        self,
        shows_at: float,
        *,
        counted: bool = True,
        consumers: Sequence[int | None] = (0,),
        slow: float = 0,
        refuses: tuple[str, ...] = (),
    ) -> None:
        self.vhost = "v"
        self._counted = counted
        self._shows_at = shows_at
        #: Of the orphan queue, at first and later.
        self._consumers = consumers
        self._slow, self._refuses = slow, refuses
        self.sent: list[tuple[str, ...]] = []

    async def topology(self, *, with_users: bool = False) -> Topology:
        return LIVE

    async def held(self, names: PoolNames) -> dict[str, tuple[int | None, int | None]]:
        now = asyncio.get_running_loop().time()
        shown, consumers = now >= self._shows_at, self._consumers[0 if now < INTERVAL / 2 else -1]
        return {"core-req-LAX": (int(shown) if self._counted else None, 0), "core-orphan": (0, consumers)}

    async def send(self, method: str, *path: str, body: Any = None) -> bool:
        await asyncio.sleep(self._slow)
        self.sent.append((method, *path))
        if method in self._refuses:
            raise ManagementError(f"no management API for {method}")
        return True


async def run(broker: Broker, *, with_messages: bool = False) -> list[str]:
    removed: list[str] = []
    await remove(broker, DECLARED, with_messages=with_messages, interval=INTERVAL, done=removed.append)
    return removed


@pytest.mark.looptime
async def test_a_message_that_shows_late_stops_the_removal_and_its_key_is_bound_again() -> None:
    broker = Broker(shows_at=INTERVAL / 2)

    with pytest.raises(CannotAsk, match="nothing was removed: core-req-LAX holds 1 message;"):
        await run(broker)

    assert broker.sent == [
        ("DELETE", "exchanges", "v", "core-req-xchg"),
        ("PUT", "exchanges", "v", "core-req-xchg"),
        ("POST", "bindings", "v", "e", "core-req-xchg", "q", "core-req-LAX"),
    ]


@pytest.mark.looptime
async def test_a_removal_that_is_interrupted_while_it_waits_leaves_the_pool_whole() -> None:
    broker = Broker(shows_at=1000)
    removal = asyncio.create_task(run(broker))
    await asyncio.sleep(INTERVAL / 2)

    removal.cancel()
    with pytest.raises(asyncio.CancelledError):
        await removal

    assert [method for method, *_ in broker.sent] == ["DELETE", "PUT", "POST"]


@pytest.mark.looptime
@pytest.mark.parametrize("refuses", [(), ("DELETE",)], ids=["takes-long", "answers-no-more"])
async def test_a_removal_that_is_interrupted_while_the_exchange_goes_leaves_the_pool_whole(
    refuses: tuple[str, ...],
) -> None:
    broker = Broker(shows_at=1000, slow=2, refuses=refuses)
    removal = asyncio.create_task(run(broker))
    if not refuses:
        await asyncio.sleep(1)
        removal.cancel()

    with pytest.raises((asyncio.CancelledError, ManagementError)):
        await removal

    assert [method for method, *_ in broker.sent] == ["DELETE", "PUT", "POST"]


@pytest.mark.looptime
async def test_an_exchange_that_cannot_come_back_is_named_with_what_to_do() -> None:
    broker = Broker(shows_at=INTERVAL / 2, refuses=("PUT",))

    with pytest.raises(CannotAsk) as caught:
        await run(broker)

    said = str(caught.value)
    assert "core-req-LAX holds 1 message;" in said
    assert "no management API for PUT; exchange core-req-xchg may be gone" in said
    assert "run `osrdyne pool apply`, and the daemon binds each key again at its next request" in said


@pytest.mark.looptime
async def test_consumers_that_have_just_gone_are_not_taken_as_there() -> None:
    assert "exchange core-req-xchg" in await run(Broker(shows_at=1000, consumers=(1, 0)))
    with pytest.raises(CannotAsk, match="core-orphan has 1 consumer;"):
        await run(Broker(shows_at=1000, consumers=(1, 1)))


@pytest.mark.looptime
async def test_an_unknown_number_of_consumers_is_not_taken_as_none() -> None:
    broker = Broker(shows_at=1000, consumers=(None, None))

    with pytest.raises(CannotAsk, match=r"the number of consumers is not known, and nothing was removed: core-orphan;"):
        await run(broker, with_messages=True)

    assert broker.sent == []
    assert await run(Broker(shows_at=1000, consumers=(None, 0)))


@pytest.mark.looptime
async def test_a_message_that_shows_at_once_stops_the_removal_before_anything_is_sent() -> None:
    broker = Broker(shows_at=0)

    with pytest.raises(CannotAsk):
        await run(broker)

    assert broker.sent == []


@pytest.mark.looptime
async def test_a_queue_whose_messages_the_broker_does_not_know_is_not_taken_as_empty() -> None:
    broker = Broker(shows_at=0, counted=False)

    with pytest.raises(CannotAsk, match="core-req-LAX holds an unknown number of messages;"):
        await run(broker)

    assert broker.sent == []
    assert "queue core-req-LAX, with an unknown number of messages" in await run(broker, with_messages=True)


@pytest.mark.looptime
async def test_the_exchange_for_requests_goes_first_and_queues_of_keys_go_too() -> None:
    broker = Broker(shows_at=1000)

    removed = await run(broker)

    assert removed[:3] == ["exchange core-req-xchg", "queue core-req-LAX", "queue core-orphan"]
    assert broker.sent[-2] == ("DELETE", "policies", "v", "core-req")
