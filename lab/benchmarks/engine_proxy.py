"""A proxy in front of a Docker engine: it notes when each call began and ended."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path


class EngineProxy:
    """Passes calls on to the engine until the `with` block ends."""

    def __init__(self, engine: str, folder: Path) -> None:
        self._engine = engine.removeprefix("unix://")
        self._path = str(folder / "proxy.sock")
        self.host = f"unix://{self._path}"
        #: First line of the request, when it was passed on, when the engine answered; in seconds since 1970.
        self.calls: list[tuple[str, float, float]] = []
        self._loop = asyncio.new_event_loop()
        self._listens = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> EngineProxy:
        self._thread.start()
        self._listens.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        self._loop.run_until_complete(asyncio.start_unix_server(self._serve, self._path))
        self._listens.set()
        self._loop.run_forever()

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        engine, to_engine = await asyncio.open_unix_connection(self._engine)
        #: The call under way, if there is one: a connection has one at a time.
        call: list[tuple[str, float]] = []

        def asked(data: bytes) -> None:
            if not call:
                call.append((data.partition(b"\r\n")[0].decode(), time.time()))

        def answered(_: bytes) -> None:
            if call:
                self.calls.append((*call.pop(), time.time()))

        await asyncio.gather(_pump(client, to_engine, asked), _pump(engine, to_client, answered))

    def start_of(self, began: float) -> float | None:
        """Return when the engine answered the first start of a container sent after `began`; None where it has not."""
        return next((end for line, at, end in self.calls if at > began and "/start " in line), None)

    def busy(self, began: float, ended: float) -> float:
        """Return for how many seconds between two times at least one call was under way."""
        total, until_now = 0.0, began
        for _, at, end in sorted(self.calls, key=lambda call: call[1]):
            total += max(0.0, min(end, ended) - max(at, until_now))
            until_now = max(until_now, min(end, ended))
        return total


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, note: Callable[[bytes], None]) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            note(data)
            writer.write(data)
            await writer.drain()
    writer.close()
