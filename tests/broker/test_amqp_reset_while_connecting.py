"""A connection that is reset in the very moment in which it is made, as proxies do whose broker is away."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from osrdyne_amqp import Connection
from osrdyne_amqp.errors import BrokerUnreachable

#: Seconds that an attempt may take at most; the test ends long before, or the reset was not noticed.
PATIENCE_SECONDS = 200.0


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


async def test_a_reset_between_connect_and_handshake_is_a_broker_that_cannot_be_reached(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = socket.socket.getpeername
    asked: list[socket.socket] = []

    def reset(self: socket.socket) -> object:
        """What the system says of a socket that was connected a moment ago."""
        if not asked:
            asked.append(self)
            raise OSError(107, "Transport endpoint is not connected")
        return real(self)

    monkeypatch.setattr(socket.socket, "getpeername", reset)
    uri = f"amqp://guest:guest@127.0.0.1:{listener.getsockname()[1]}/"
    async with asyncio.timeout(PATIENCE_SECONDS):
        with pytest.raises(BrokerUnreachable, match="reset"):
            await Connection.open(uri, name="test", timeout=PATIENCE_SECONDS)
    assert asked[0].fileno() == -1
