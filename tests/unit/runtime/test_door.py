"""What strangers have of a server, on a real one: for how long, and how many of them."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

from osrdyne_runtime.door import Door, address_of
from testbed.waiting import PATIENCE_SECONDS, until_async

#: Longer than any test.
LONG = 2 * PATIENCE_SECONDS


class GreetingProtocol(asyncio.Protocol):
    """Lets in who says hello, and repeats what it says."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if data == b"hello":
            self._door.let_in(address_of(self._transport))
        self._transport.write(data)


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def served(door: Door) -> AsyncIterator[int]:
    server = await asyncio.get_running_loop().create_server(door.around(lambda: GreetingProtocol(door)), "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        door.close()


async def connected(port: int, says: bytes = b"") -> Streams:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    if says:
        writer.write(says)
        assert await reader.readexactly(len(says)) == says
    return reader, writer


async def ended(streams: Streams) -> bool:
    try:
        return await asyncio.wait_for(streams[0].read(), PATIENCE_SECONDS) == b""
    except ConnectionError:
        return True


async def lives(streams: Streams) -> bool:
    streams[1].write(b"x")
    return await streams[0].readexactly(1) == b"x"


async def test_a_connection_that_does_not_show_in_time_who_it_is_is_closed_and_others_stay() -> None:
    door = Door(most=10, patience=0.2)
    async with served(door) as port:
        silent, half, known = await connected(port), await connected(port, b"hel"), await connected(port, b"hello")
        with closing(silent[1]), closing(half[1]), closing(known[1]):
            assert await ended(silent)
            assert await ended(half)
            assert await lives(known)
            assert door.connections == 1
        await until_async(lambda: door.connections == 0)


async def test_the_oldest_stranger_gives_way_and_no_client_that_is_known_does() -> None:
    door = Door(most=10, most_waiting=2, patience=LONG)
    async with served(door) as port:
        known = await connected(port, b"hello")
        strangers = [await connected(port, b"x") for _ in range(3)]
        late = await connected(port, b"hello")
        try:
            assert await ended(strangers[0])
            assert await ended(strangers[1])
            assert [await lives(connection) for connection in (strangers[2], known, late)] == [True, True, True]
        finally:
            for _, writer in (known, late, *strangers):
                writer.close()


async def test_strangers_that_have_used_up_all_connections_give_way_to_a_client() -> None:
    door = Door(most=3, most_waiting=3, patience=LONG)
    async with served(door) as port:
        strangers = [await connected(port, b"x") for _ in range(3)]
        client = await connected(port, b"hello")
        try:
            assert await ended(strangers[0])
            assert [await lives(connection) for connection in (client, *strangers[1:])] == [True, True, True]
            await until_async(lambda: door.connections == 3)
        finally:
            for _, writer in (client, *strangers):
                writer.close()


async def test_one_connection_too_many_is_closed_at_once() -> None:
    door = Door(most=1, patience=LONG)
    async with served(door) as port:
        first = await connected(port, b"hello")
        second = await connected(port)
        with closing(first[1]), closing(second[1]):
            assert await ended(second)
            assert await lives(first)


async def test_what_came_in_time_is_read_after_the_loop_stood_still() -> None:
    class Later(GreetingProtocol):
        """Lets in from a task, as a server of HTTP does."""

        def data_received(self, data: bytes) -> None:
            asyncio.get_running_loop().call_soon(super().data_received, data)

    door = Door(most=10, patience=0.5)
    server = await asyncio.get_running_loop().create_server(door.around(lambda: Later(door)), "127.0.0.1", 0)
    async with server:
        with closing(socket.create_connection(server.sockets[0].getsockname())) as client:
            await until_async(lambda: door.connections == 1)
            client.sendall(b"hello")
            time.sleep(1)  # noqa: ASYNC251 - the loop stands still
            client.settimeout(PATIENCE_SECONDS)
            assert await asyncio.to_thread(client.recv, 5) == b"hello"
