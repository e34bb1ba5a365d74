"""A call over the bus that raised has taken and sent nothing, whatever its arguments were, on RabbitMQ."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from osrdyne_bus import Target
from osrdyne_bus.aio import AsyncBusClient, AsyncBusServer
from osrdyne_bus.endpoints import Endpoint
from osrdyne_bus.errors import UnsendableMessage
from osrdyne_bus.messages.wire import BusRequest
from osrdyne_bus.settings import BusSettings
from osrdyne_protocol.errors import InvalidTimeout
from tests.bus.on_peers.conftest import OpenBus

MAPS = Target("maps")
N = Target("maps", server="n")


def nested(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(depth):
        found = {"a": found}
    return found


BAD_TIMES: Any = (math.nan, -math.inf, -1, 0, True, "5", b"5", [], timedelta(seconds=5))
BAD_HEADERS: Any = (
    *(None, [1], "text", 7, {"a": object()}, {"a": None}, {"a": "\ud800"}, {"\ud800": 1}, {1: 2}, {b"a": 1}),
    *({"a": 2**63}, {"a": -(2**63) - 1}, {"a": [1]}, nested(2), nested(5000), {"a": timedelta(1)}),
)
BAD_BODIES: Any = (None, "text", 5, [1], {})


async def test_bad_calls_take_no_slot_and_no_link_and_send_nothing(open_bus: OpenBus) -> None:
    asked: list[bytes] = []
    endpoint = Endpoint()

    @endpoint.method
    def echo(request: BusRequest) -> bytes:
        asked.append(request.body)
        return request.body

    far = await open_bus()
    bus = await open_bus(settings=BusSettings(slots=1))
    client = AsyncBusClient(bus)
    bad: list[tuple[Mapping[str, Any], type[Exception]]] = [
        *(({"timeout": time}, InvalidTimeout) for time in BAD_TIMES),
        *(({"headers": header}, UnsendableMessage) for header in BAD_HEADERS),
        *(({"body": body}, UnsendableMessage) for body in BAD_BODIES),
        *(({"method": method}, UnsendableMessage) for method in (b"echo", 5, "\ud800")),
        *(({"content_type": content_type}, UnsendableMessage) for content_type in (b"text", 5, "\ud800")),
    ]
    async with AsyncBusServer(far, N, [endpoint]):
        for given, kind in bad:
            for ask in (client.call, client.cast, client.fanout):
                with pytest.raises(kind):
                    await ask(**{"target": MAPS, "method": "echo", "body": b"bad", **given})
            named = {"event_type" if name == "method" else name: value for name, value in given.items()}
            with pytest.raises(kind):
                await client.notify(**{"target": MAPS, "event_type": "e", "body": b"bad", **named})
            assert (bus.calls, bus.senders) == (0, 0), given
        for body in (b"x", bytearray(b"x"), memoryview(b"x")):
            for timeout in (math.inf, 10**400, 60):
                assert (await client.call(MAPS, "echo", body, timeout=timeout)).body == b"x"  # type: ignore[arg-type]
        assert bus.calls == 0
    assert set(asked) == {b"x"}
