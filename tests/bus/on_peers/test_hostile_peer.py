"""Another peer sends messages of all types to a server, a listener and a caller over AMQP 1.0: all of them go on.

It is not our library, and the broker cannot deliver some of what it takes. What it sends is generated from a seed.
"""

from __future__ import annotations

import asyncio

import pytest

from osrdyne_bus.aio import AsyncBusClient, AsyncBusListener, AsyncBusServer
from osrdyne_bus.errors import MessagingError
from osrdyne_bus.messages.wire import Notification
from osrdyne_calls.errors import CallTimeout, RemoteError
from testbed.hostile.amqp_1_0 import everything
from testbed.hostile.chance import drawn
from testbed.hostile.sending import send_messages
from testbed.waiting import PATIENCE_SECONDS, until_async
from tests.bus.on_peers.conftest import OpenBus
from tests.bus.on_peers.servers import MAPS, N, endpoint
from tests.conftest import Vhost
from tests.simulation.many_seeds import first_seed

pytestmark = [pytest.mark.both_versions, pytest.mark.parametrize("seed", [first_seed()])]

SERVED, HEARD = "unicast.osrdyne.maps", "notify.osrdyne.maps.info"
COUNT, BATCH = 120, 10


async def test_a_server_a_listener_and_a_caller_go_on_whatever_another_peer_sends_them(
    open_bus: OpenBus, vhost: Vhost, seed: int
) -> None:
    # What cannot be delivered is given up after two tries.
    policy = {"pattern": "^(unicast|notify)", "definition": {"delivery-limit": 2}, "apply-to": "queues"}
    vhost.broker.management.put("policies", vhost.name, "few-tries", body=policy)
    near, far = await open_bus(), await open_bus()
    client, heard, ended = AsyncBusClient(near), asyncio.Queue[bytes](), asyncio.Event()
    uri = vhost.broker.amqp_uri(vhost=vhost.name)

    async def hear(notification: Notification) -> None:
        if notification.event_type == "good":
            heard.put_nowait(notification.body)

    async def call() -> None:
        """Call until the end. Requests and replies that share a queue with what cannot be delivered may be lost."""
        while not ended.is_set():
            try:
                assert (await client.call(MAPS, "echo", b"good", timeout=5.0)).body == b"good"
            except (MessagingError, RemoteError, CallTimeout):
                await asyncio.sleep(0.1)

    async with AsyncBusServer(far, N, endpoint()) as server, AsyncBusListener(far, MAPS, hear) as listener:
        await client.call(MAPS, "echo", b"first", timeout=PATIENCE_SECONDS)
        calling = asyncio.create_task(call())
        messages = drawn(everything([f"/queues/{SERVED}"]), seed, COUNT)
        for at in range(0, COUNT, BATCH):
            to_peer = near._connection.present
            replies = [to_peer.reply_to] if to_peer is not None and to_peer.reply_to else []
            addressed = [
                (address, data)
                for address in [f"/queues/{SERVED}", f"/queues/{HEARD}", *replies]
                for data in messages[at : at + BATCH]
            ]
            await asyncio.to_thread(send_messages, uri, addressed)
        ended.set()
        await calling

        async def answered() -> bool:
            try:
                return (await client.call(MAPS, "echo", b"good", timeout=5.0)).body == b"good"
            except (MessagingError, RemoteError, CallTimeout):
                return False

        await until_async(answered)
        await client.notify(MAPS, "good", b"at last", timeout=PATIENCE_SECONDS)
        while await asyncio.wait_for(heard.get(), PATIENCE_SECONDS) != b"at last":
            pass
        await until_async(lambda: server.in_hand == 0 and listener.in_hand == 0)
    assert near.calls == 0
