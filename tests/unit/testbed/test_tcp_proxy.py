"""The proxy that tests put before a peer ends all connections that it is asked to end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from testbed.tcp_proxy import TcpProxy


async def test_a_connection_that_is_being_made_when_all_are_cut_is_cut_too(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = asyncio.open_connection
    being_made, goes_on = asyncio.Event(), asyncio.Event()
    ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            ended.set_result((await reader.read(5)).decode())
        except ConnectionResetError:
            ended.set_result("")
        writer.close()

    async def connect_later(*arguments: Any) -> Any:
        being_made.set()
        await goes_on.wait()
        return await connect(*arguments)

    async with (
        await asyncio.start_server(hear, "127.0.0.1", 0) as peer,
        TcpProxy(peer.sockets[0].getsockname()[1]) as proxy,
    ):
        monkeypatch.setattr(asyncio, "open_connection", connect_later)
        _, writer = await connect("127.0.0.1", proxy.port)
        writer.write(b"asked")
        await being_made.wait()

        proxy.cut(refuse=True)
        goes_on.set()

        assert await ended == ""
        writer.close()
