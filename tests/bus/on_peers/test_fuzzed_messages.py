"""Messages with any annotations, properties and bodies reach a server, a listener and callers: all of them go on."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from osrdyne_bus import Target
from osrdyne_bus.aio import AsyncBus, AsyncBusClient, AsyncBusListener, AsyncBusServer
from osrdyne_bus.endpoints import Endpoint
from osrdyne_bus.engine import BusConnection, IncomingMessage, Login, senders
from osrdyne_bus.engine.messages import Value, encoded
from osrdyne_bus.errors import DeliveryFailure, DeliveryRejected, MessagingError, RepliesLost
from osrdyne_bus.messages.envelopes import Envelope
from osrdyne_bus.messages.wire import BusRequest, Notification
from osrdyne_calls.errors import RemoteError
from osrdyne_calls.replies import Reply
from testbed.amqp_1_0 import BINARY, DATA, MAP, MESSAGE_ANNOTATIONS, NULL, SYMBOL, compound, section, sized, text
from testbed.hostile.amqp_1_0 import IDS, TEXTS, messages
from testbed.suite import examples
from testbed.waiting import PATIENCE_SECONDS, until_async
from tests.bus.on_peers.conftest import OpenBus
from tests.conftest import Vhost
from tests.security.arbitrary import FUZZ

pytestmark = pytest.mark.both_versions

MAPS = Target("maps")
#: Stands for the name of a call, which is as long.
PLACE = b"?" * 30
OURS_OR_NOT = st.sampled_from([text(PLACE.decode())] * 3) | IDS
METHODS = st.sampled_from([text("echo"), text("echo"), NULL]) | TEXTS.map(text)
#: Without making a failing example smaller: each try would wait.
OURS = settings(FUZZ, max_examples=examples(200), phases=[Phase.generate])


class Raw(Envelope):
    """A message whose body is all of its bytes."""


@pytest.fixture(autouse=True)
def nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Pytest keeps what is logged, with exceptions and the messages in their frames."""
    caplog.set_level(logging.CRITICAL, "osrdyne_bus")


@pytest.fixture(autouse=True)
def raw_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    def encode(envelope: Envelope, value: Value | EllipsisType = ...) -> bytes:
        return envelope.body if isinstance(envelope, Raw) else encoded(envelope, value)

    monkeypatch.setattr(senders, "encoded", encode)


class Stranger:
    """Sends bytes as they are, and connects again where the broker closed the connection for them."""

    def __init__(self, vhost: Vhost) -> None:
        self._vhost = vhost
        self._connection: BusConnection | None = None
        self._link: Any = None
        self._address = ""
        #: Messages that a queue took, and those for which the broker ended link or connection.
        self.taken = self.refused = 0

    async def send(self, address: str, data: bytes) -> None:
        if self._link is None or not self._link.is_open or address != self._address:
            await self.close()
            broker = self._vhost.broker
            login = Login(broker.admin, broker.admin_password)
            self._connection = await BusConnection.connect(
                "127.0.0.1", broker.amqp_port, login=login, virtual_host=f"vhost:{self._vhost.name}"
            )
            self._link, self._address = await self._connection.sender(address), address
        try:
            await self._link.send(Raw(data), PATIENCE_SECONDS)
        except (DeliveryFailure, DeliveryRejected):
            pass
        except MessagingError:
            self.refused += 1
        else:
            self.taken += 1

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()


@pytest.fixture
async def stranger(vhost: Vhost) -> AsyncIterator[Stranger]:
    made = Stranger(vhost)
    yield made
    await made.close()
    # The broker reads annotations and properties, and refuses what it does not understand.
    assert made.taken > 10 * made.refused


def is_bounded(bus: AsyncBus) -> bool:
    """Whether a bus keeps nothing of what it did, and no link or session for what strangers sent."""
    to_peer = bus._connection.present
    assert to_peer is not None
    assert bus.connections == 1
    # Of a server three subscriptions, of a caller one; management is two, and replies and requests have one each.
    sessions = to_peer.connection._sessions
    kept = (to_peer.connection._links, sessions._open, sessions._ended)
    return bus.calls == 0 and max(map(len, kept)) <= 8


@pytest.fixture
async def near(open_bus: OpenBus) -> AsyncIterator[AsyncBus]:
    """The bus of a caller."""
    bus = await open_bus()
    yield bus
    assert is_bounded(bus)


@pytest.fixture
async def far(open_bus: OpenBus, vhost: Vhost) -> AsyncIterator[AsyncBus]:
    """The bus that serves the calls. There is a queue for replies that is never read."""
    vhost.broker.management.put("queues", vhost.name, "kept", body={"durable": True})
    bus = await open_bus()
    yield bus
    assert is_bounded(bus)
    gc.collect()
    assert not [thing for thing in gc.get_objects() if type(thing) in (IncomingMessage, senders._OutgoingMessage)]


async def is_drained(vhost: Vhost, queue: str) -> None:
    """Wait until a queue has nothing, and nothing that was not acknowledged."""
    await until_async(lambda: (vhost.broker.management.queue(vhost.name, queue) or {}).get("messages") == 0)


@dataclass(frozen=True)
class Slow:
    """Calls of the method `wait`: their names, and what they wait for."""

    calls: asyncio.Queue[Any]
    go: asyncio.Queue[None]


@pytest.fixture
def slow() -> Slow:
    return Slow(asyncio.Queue(), asyncio.Queue())


@pytest.fixture(params=["start", "end"])
async def server(
    request: pytest.FixtureRequest, far: AsyncBus, slow: Slow, vhost: Vhost
) -> AsyncIterator[AsyncBusServer]:
    async def wait(request: BusRequest) -> None:
        slow.calls.put_nowait(request.id)
        await slow.go.get()

    endpoint = Endpoint()
    endpoint.add("echo", lambda request: request.body)
    endpoint.add("wait", wait)
    async with AsyncBusServer(far, Target("maps", server="n"), [endpoint], acknowledge=request.param) as made:
        yield made
        await is_drained(vhost, "unicast.osrdyne.maps")


@OURS
@given(data=messages(METHODS))
async def test_a_server_goes_on_whatever_it_is_sent(
    data: bytes, near: AsyncBus, server: AsyncBusServer, stranger: Stranger
) -> None:
    await stranger.send("/queues/unicast.osrdyne.maps", data)

    assert (await AsyncBusClient(near).call(MAPS, "echo", b"good", timeout=PATIENCE_SECONDS)).body == b"good"
    await until_async(lambda: server.in_hand == 0 and not server._replies.under_way)


@pytest.fixture
async def heard(far: AsyncBus, vhost: Vhost) -> AsyncIterator[asyncio.Queue[bytes]]:
    """What a listener is sent as `good`."""
    found: asyncio.Queue[bytes] = asyncio.Queue()

    async def hear(notification: Notification) -> None:
        if notification.event_type == "good":
            found.put_nowait(notification.body)

    async with AsyncBusListener(far, MAPS, hear) as made:
        yield found
        await until_async(lambda: made.in_hand == 0)
        await is_drained(vhost, "notify.osrdyne.maps.info")


@OURS
@given(data=messages(), number=st.integers())
async def test_a_listener_goes_on_whatever_it_is_sent(
    data: bytes, number: int, near: AsyncBus, heard: asyncio.Queue[bytes], stranger: Stranger
) -> None:
    await stranger.send("/queues/notify.osrdyne.maps.info", data)

    good = str(number).encode()
    await AsyncBusClient(near).notify(MAPS, "good", good, timeout=PATIENCE_SECONDS)
    while (found := await asyncio.wait_for(heard.get(), PATIENCE_SECONDS)) != good:
        assert found  # of the stranger


@pytest.mark.parametrize("server", ["start"], indirect=True)
@OURS
@given(data=messages(correlation_id=OURS_OR_NOT))
async def test_a_caller_goes_on_whatever_reply_it_is_sent(
    data: bytes, near: AsyncBus, slow: Slow, server: AsyncBusServer, stranger: Stranger
) -> None:
    client = AsyncBusClient(near)
    call = asyncio.create_task(client.call(MAPS, "wait", timeout=PATIENCE_SECONDS))
    name = await asyncio.wait_for(slow.calls.get(), PATIENCE_SECONDS)
    await stranger.send(replies_to(near), data.replace(PLACE, name.encode()))

    assert (await client.call(MAPS, "echo", b"good", timeout=PATIENCE_SECONDS)).body == b"good"
    slow.go.put_nowait(None)
    (ended,) = await asyncio.gather(call, return_exceptions=True)
    assert isinstance(ended, Reply | RemoteError)
    await until_async(lambda: server.in_hand == 0)


def replies_to(bus: AsyncBus) -> str:
    return bus._connection.present.reply_to if bus._connection.present is not None else ""


#: RabbitMQ takes a null as annotation, and closes the connection of each receiver that it should deliver it to.
POISON = section(MESSAGE_ANNOTATIONS, compound(MAP, [sized(SYMBOL, b"x-a"), NULL])) + section(DATA, sized(BINARY, b""))


async def test_a_reply_that_the_broker_cannot_deliver_fails_the_calls_that_wait_and_no_later_one(
    open_bus: OpenBus, server: AsyncBusServer, slow: Slow, stranger: Stranger
) -> None:
    bus = await open_bus()
    client = AsyncBusClient(bus)
    call = asyncio.create_task(client.call(MAPS, "wait", timeout=PATIENCE_SECONDS))
    await asyncio.wait_for(slow.calls.get(), PATIENCE_SECONDS)
    poisoned = replies_to(bus)
    await stranger.send(poisoned, POISON)
    slow.go.put_nowait(None)

    with pytest.raises(RepliesLost, match="the replies to earlier calls cannot be received any more"):
        await call
    assert (await client.call(MAPS, "echo", b"good", timeout=PATIENCE_SECONDS)).body == b"good"
    assert replies_to(bus) != poisoned


async def test_a_request_that_the_broker_cannot_deliver_is_given_up_and_the_server_goes_on(
    open_bus: OpenBus, near: AsyncBus, stranger: Stranger, vhost: Vhost
) -> None:
    """After 20 tries, unless a policy says otherwise: they would take minutes."""
    policy = {"pattern": "^unicast", "definition": {"delivery-limit": 2}, "apply-to": "queues"}
    vhost.broker.management.put("policies", vhost.name, "few-tries", body=policy)
    far = await open_bus()
    endpoint = Endpoint()
    endpoint.add("echo", lambda request: request.body)
    async with AsyncBusServer(far, Target("maps", server="n"), [endpoint]):
        await stranger.send("/queues/unicast.osrdyne.maps", POISON)

        assert (await AsyncBusClient(near).call(MAPS, "echo", b"good", timeout=PATIENCE_SECONDS)).body == b"good"
    assert far.connections > 1
