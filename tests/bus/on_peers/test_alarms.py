"""RabbitMQ without memory or disk takes no messages: calls end in their time, and go on over the same connection."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from osrdyne_bus import Target
from osrdyne_bus.aio import AsyncBus, AsyncBusClient, AsyncBusServer
from osrdyne_bus.endpoints import Endpoint
from osrdyne_bus.errors import MessagingTimeout
from osrdyne_bus.messages.wire import BusRequest
from testbed.broker import MEMORY_MB, Broker
from testbed.command_line import osrdyne
from testbed.in_time import command_in_time
from testbed.waiting import PATIENCE_SECONDS, until_async
from tests.broker.test_waits import ill
from tests.unit.runtime.commands_on_peers import NOBODY

pytestmark = pytest.mark.both_versions

MAPS = Target("maps")
MEMORY = ("mem_alarm", ["set_vm_memory_high_watermark", "absolute"], "1MB", f"{MEMORY_MB}MB")
DISK = ("disk_free_alarm", ["set_disk_free_limit"], "900000GB", "50MB")
#: Seconds for a message that the broker does not take.
SHORT_SECONDS = 0.5


def is_raised(broker: Broker, alarm: str) -> bool:
    return bool(broker.management.get("nodes")[0].get(alarm))


@pytest.mark.parametrize("words", [("ping", "maps", "roads"), ("watch", "maps", "roads", "--rounds", "1")])
async def test_in_an_alarm_a_command_on_the_bus_ends_in_its_time_and_says_what_has_no_answer(
    private_broker: Broker, words: tuple[str, ...]
) -> None:
    uri = private_broker.amqp_uri()
    line = ["bus", *words, "--timeout", "2"]
    alone = partial(osrdyne, *line, variables={"OSRDYNE_BUS_URI": NOBODY.broker})
    async with (
        AsyncBus(uri) as far,
        AsyncBusServer(far, Target("maps", server="n"), []),
        AsyncBusServer(far, Target("roads", server="n"), []),
        ill(private_broker, "disk alarm"),
    ):
        done = await command_in_time(line, {"OSRDYNE_BUS_URI": uri}, 2.0, alone=alone)
    said = done.out.decode()
    assert said.count("had no credit; it was not sent") == 3
    assert ("maps: no answer: within " in said, "roads: no answer: within " in said) == (True, True)
    assert done.code == (1 if words[0] == "ping" else 0)


async def test_in_an_alarm_messages_end_in_their_time_and_calls_after_it_need_no_new_connection(
    private_broker: Broker,
) -> None:
    began: list[bytes] = []

    async def note(request: BusRequest) -> bytes:
        began.append(request.body)
        return request.body

    endpoint = Endpoint()
    endpoint.add("note", note)
    uri = private_broker.amqp_uri()
    async with (
        AsyncBus(uri) as near,
        AsyncBus(uri) as far,
        AsyncBusServer(far, Target("maps", server="n"), [endpoint]) as server,
    ):
        client = AsyncBusClient(near)
        await client.call(MAPS, "note", b"before", timeout=PATIENCE_SECONDS)
        for alarm, limit, too_much, usual in (MEMORY, DISK):
            began.clear()
            await asyncio.to_thread(private_broker.rabbitmqctl, *limit, too_much)
            await until_async(partial(is_raised, private_broker, alarm))

            for send in (client.call, client.cast, client.fanout):
                with pytest.raises(MessagingTimeout, match=r"within 0.5 s .* was not acknowledged; it may have been"):
                    await send(MAPS, "note", send.__name__.encode(), timeout=SHORT_SECONDS)
            async with AsyncBus(uri) as fresh:
                with pytest.raises(MessagingTimeout, match=r"had no credit; it was not sent"):
                    await AsyncBusClient(fresh).call(MAPS, "note", b"fresh", timeout=SHORT_SECONDS)
            assert began == []

            await asyncio.to_thread(private_broker.rabbitmqctl, *limit, usual)
            assert (await client.call(MAPS, "note", b"after", timeout=PATIENCE_SECONDS)).body == b"after"
            # A call is not begun after its time.
            await until_async(lambda: len(began) == 3)
            assert sorted(began) == [b"after", b"cast", b"fanout"]
        assert (near.connections, far.connections, server.in_hand) == (1, 1, 0)
