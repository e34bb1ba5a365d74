"""Following the engine's events: one thread reads them and passes each, and the stream's end, to the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

log = logging.getLogger(__name__)

Event = dict[str, Any]


class Stream(Protocol):
    """Events as they come; `close`, from any thread, ends the iteration."""

    def __iter__(self) -> Iterator[Event]: ...

    def close(self) -> None: ...


class EventFollower:
    """Passes events on until the stream ends or is closed. Create it in the event loop that receives them."""

    def __init__(self, stream: Stream, on_event: Callable[[Event], None], on_end: Callable[[], None]) -> None:
        self._stream = stream
        self._on_event = on_event
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._closed = False
        threading.Thread(target=self._read, name="docker-events", daemon=True).start()

    @property
    def is_open(self) -> bool:
        return not self._ended.is_set()

    async def close(self) -> None:
        """Close the stream, and return once the thread has stopped reading. `on_end` is not called."""
        self._closed = True
        if self.is_open:
            # Otherwise only the thread would hold the stream.
            with contextlib.suppress(OSError, AttributeError):
                self._stream.close()
            await self._ended.wait()

    def _read(self) -> None:
        try:
            for event in self._stream:
                self._loop.call_soon_threadsafe(self._on_event, event)
        except Exception as error:  # noqa: BLE001 - half an event, a closed socket: however it shows, the stream is over
            log.debug("the engine's events broke off", extra={"reason": f"{type(error).__name__}: {error}"})
        finally:
            with contextlib.suppress(RuntimeError):  # the loop has gone
                self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        self._ended.set()
        if not self._closed:
            self._on_end()
