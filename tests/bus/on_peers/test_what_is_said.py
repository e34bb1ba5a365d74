"""What the engine says of a peer that sends all it may, is cut off, or does not speak TLS."""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import Any

import proton
import pytest

from osrdyne_bus.credit import CreditWindow
from osrdyne_bus.engine import BusConnection
from osrdyne_bus.engine.subscriptions import IncomingMessage
from osrdyne_bus.errors import ConnectFailed, PeerLost
from osrdyne_bus.messages.envelopes import Envelope
from testbed.waiting import PATIENCE_SECONDS, until_async
from tests.bus.on_peers.scripted_peer import ScriptedPeer, serving


async def test_a_peer_that_has_used_up_its_credit_is_a_line_for_those_who_look(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "osrdyne_bus")
    peer, came = ScriptedPeer(), list[IncomingMessage]()
    async with serving(peer) as port:
        connection = await BusConnection.connect("127.0.0.1", port)
        await connection.subscribe("maps", CreditWindow(2), came.append)
        (link,) = peer.links
        for _ in range(2):
            peer.send(link, proton.Message(body=b"x", inferred=True).encode())
        peer.flush()
        await until_async(lambda: len(came) == 2)
        await connection.close()
    lines = [record.getMessage() for record in caplog.records if "credit" in record.getMessage()]
    assert lines == [f'a peer has used up its credit peer="127.0.0.1:{port}" address="maps"']


class CutSocket:
    """A socket that was cut: asyncio notices at the first write, and says so of each further one."""

    writes = 0

    def write(self, data: bytes) -> None:
        self.writes += 1

    def is_closing(self) -> bool:
        return self.writes > 0

    def close(self) -> None:
        """Nothing more to do."""


async def test_nothing_more_is_written_once_a_connection_was_cut() -> None:
    peer, cut = ScriptedPeer(), CutSocket()
    async with serving(peer) as port:
        connection = await BusConnection.connect("127.0.0.1", port)
        sender = await connection.sender("maps")
        real: Any = connection._transport._socket
        connection._transport._socket = cut  # type: ignore[assignment]
        sending = [asyncio.create_task(sender.send(Envelope(bytes(100_000)), PATIENCE_SECONDS)) for _ in range(50)]
        await until_async(lambda: sender.credit < 1000)
        connection._transport.work()
        connection._transport.work()
        assert cut.writes == 1
        connection._transport._socket = real
        connection.abort(PeerLost("it was cut"))
        await asyncio.gather(*sending, return_exceptions=True)


async def test_a_peer_that_speaks_no_tls_is_said_to_have_ended_the_connection_while_tls_began() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(ConnectFailed, match=r": it ended the connection while TLS began: check that this port"):
        await BusConnection.connect("127.0.0.1", port, tls=ssl.create_default_context())
    server.close()
