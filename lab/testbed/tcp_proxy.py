"""A TCP proxy before a peer, which cuts or silences what goes through it."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class TcpProxy:
    """Forwards connections to a port of this machine. Use it with `async with`."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._open = asyncio.Event()
        self._open.set()
        self._server: asyncio.Server
        #: Whether it ends each connection that is made.
        self.refuses = False

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def port(self) -> int:
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def connections(self) -> int:
        """How many connections go through it now."""
        return len(self._tasks) // 2

    def cut(self, *, refuse: bool = False) -> None:
        """End all connections at once, by a reset; with `refuse` all later ones too."""
        self.refuses = refuse
        for writer in self._writers:
            writer.transport.abort()

    def silence(self) -> None:
        """Keep all connections, and forward nothing any more."""
        self._open.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuses:
            writer.transport.abort()
            return
        self._writers.add(writer)
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            writer.transport.abort()
            return
        if writer.transport.is_closing():
            # It was cut while it was being made.
            far_writer.transport.abort()
            return
        self._writers.add(far_writer)
        for source, other in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.create_task(self._forward(source, other))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                await self._open.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.transport.abort()
