"""A TCP proxy between a broker and its users. It can cut, delay and silence connections.

It has a port for each side (daemon, client, worker), so that one side can be hurt alone. It reads the AMQP methods
that it passes on, and calls watches with each of them before. So a test kills a process at an exact point of its work,
without a hook in its code. The proxy has a thread; every public method may be called from any other thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from faults.frames import Method, Scanner

Direction = Literal["up", "down"]
#: Is called with each method before it is passed on: the port from which the connection was made, the direction, and
#: the method.
Watch = Callable[[int, Direction, Method], None]

HOST = "127.0.0.1"
CHUNK = 65536
#: Seconds that a call from another thread may take.
CALL_SECONDS = 10.0
#: Turns of the loop from the accept of a connection until its task has begun, with a margin.
ACCEPT_TURNS = 5


@dataclass(eq=False)
class Link:
    """One connection through the proxy."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    far_reader: asyncio.StreamReader
    far_writer: asyncio.StreamWriter
    #: Cleared while nothing is passed on.
    passing: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def port(self) -> int:
        return int(self.writer.get_extra_info("peername")[1])

    def abort(self) -> None:
        for writer in (self.writer, self.far_writer):
            _reset(writer)


@dataclass(eq=False)
class Side:
    """The programs that connect to one port."""

    links: set[Link] = field(default_factory=set)
    watches: list[Watch] = field(default_factory=list)
    #: Seconds by which everything is late, in both directions.
    delay: float = 0.0
    server: asyncio.Server | None = None


class Proxy:
    """Use it with `with`; it passes on to `broker_port` of this machine."""

    def __init__(self, broker_port: int, *sides: str) -> None:
        self._broker_port = broker_port
        self._sides = {name: Side() for name in sides}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._serving: set[asyncio.Task[None]] = set()
        #: Port of each side.
        self.ports: dict[str, int] = {}

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._call(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_SECONDS)
        self._loop.close()

    def cut(self, *sides: str) -> None:
        """Reset every connection of these sides."""

        async def act() -> None:
            for side in sides:
                for link in list(self._sides[side].links):
                    link.abort()

        self._call(act())

    def delay(self, seconds: float, *sides: str) -> None:
        """Delay everything on these sides from now on; 0 ends the delay."""

        async def act() -> None:
            for side in sides:
                self._sides[side].delay = seconds

        self._call(act())

    def silence(self, *sides: str) -> None:
        """Pass on nothing more over the present connections, and close none of them. New connections work."""

        async def act() -> None:
            for side in sides:
                for link in self._sides[side].links:
                    link.passing.clear()

        self._call(act())

    def drop_silenced(self) -> None:
        """Reset the connections that `silence` left open."""

        async def act() -> None:
            for side in self._sides.values():
                for link in list(side.links):
                    if not link.passing.is_set():
                        link.abort()

        self._call(act())

    def watch(self, side: str, watch: Watch) -> Callable[[], None]:
        """Call `watch` with every method of a side, in the proxy's thread. Return a function that ends this."""

        async def add() -> None:
            self._sides[side].watches.append(watch)

        async def remove() -> None:
            if watch in self._sides[side].watches:
                self._sides[side].watches.remove(watch)

        self._call(add())
        return lambda: self._call(remove())

    def connections(self, side: str) -> int:
        """Return how many connections a side has now."""

        async def count() -> int:
            return len(self._sides[side].links)

        return int(self._call(count()))

    def _call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_SECONDS)

    async def _open(self) -> None:
        for name, side in self._sides.items():

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, side: Side = side) -> None:
                task = asyncio.current_task()
                assert task is not None
                self._serving.add(task)
                try:
                    # Cancelled when the proxy closes; asyncio would complain of a handler that ends so.
                    with contextlib.suppress(asyncio.CancelledError):
                        await self._serve(side, reader, writer)
                finally:
                    self._serving.discard(task)
                    writer.transport.abort()

            side.server = await asyncio.start_server(serve, HOST, 0)
            self.ports[name] = side.server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        # asyncio would drop, and not close, a connection that was accepted a turn before its server closes.
        for _ in range(ACCEPT_TURNS):
            await asyncio.sleep(0)
        for side in self._sides.values():
            if side.server is not None:
                side.server.close()
            for link in list(side.links):
                link.abort()
        # Each task is cancelled once and ends in its own time. The task of a new connection may begin first, because
        # only a task that has begun closes its socket.
        cancelled: set[asyncio.Task[None]] = set()
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in self._serving - cancelled:
                task.cancel()
            cancelled |= self._serving
            await asyncio.wait(tasks, timeout=0.05)
        await asyncio.sleep(0)  # sockets are closed in the turn after their transports

    async def _serve(self, side: Side, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(HOST, self._broker_port)
        except OSError:
            _reset(writer)
            return
        link = Link(reader, writer, far_reader, far_writer)
        link.passing.set()
        side.links.add(link)
        pumps = [
            asyncio.ensure_future(self._pump(side, link, "up")),
            asyncio.ensure_future(self._pump(side, link, "down")),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            side.links.discard(link)
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for end in (writer, far_writer):
                end.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            with contextlib.suppress(OSError):
                await far_writer.wait_closed()

    async def _pump(self, side: Side, link: Link, direction: Direction) -> None:
        reader, writer = (link.reader, link.far_writer) if direction == "up" else (link.far_reader, link.writer)
        scanner, port = Scanner(), link.port
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                await link.passing.wait()
                for method in scanner.feed(data):
                    for watch in list(side.watches):
                        watch(port, direction, method)
                if side.delay:
                    await asyncio.sleep(side.delay)
                writer.write(data)
                await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Reset a connection, as a network does, instead of closing it in good order."""
    found = writer.get_extra_info("socket")
    if found is not None and found.fileno() >= 0:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
