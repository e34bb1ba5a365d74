"""What handlers get over the relay: a request of the worker library, with data streams in both directions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osrdyne_calls.handling import Request
from osrdyne_relay.client.asynchronous import NodeStreams
from osrdyne_relay.client.threads import BlockingStream, BlockingStreams
from osrdyne_relay.errors import InvalidCall, StreamLost
from osrdyne_relay.redis.records import MOST_STREAMS
from osrdyne_relay.streams.base import Source, StoredStream, stored
from osrdyne_relay.wire import StreamEntry

#: Most characters of a stream's name.
_MOST_NAME = 256


class AnswerStreams:
    """The streams that a handler has sent with its answer, by name."""

    def __init__(self, why_not: str | None = None) -> None:
        """`why_not`: why there is no answer that could have streams."""
        self.streams: dict[str, StreamEntry] = {}
        self._why_not = why_not

    def __reduce__(self) -> tuple[Any, ...]:
        return AnswerStreams, (
            "the handler runs in a process of its own, which has no answer: use threads or `async def`",
        )

    def close(self) -> None:
        """Take no more: the request has its answer, or none is wanted."""
        self._why_not = "the request has ended: stop the work"

    def check(self, name: str) -> None:
        """Raise where a stream of this name cannot be sent: StreamLost, InvalidCall."""
        if self._why_not is not None:
            raise StreamLost(f"data stream {name!r} cannot be sent: {self._why_not}")
        if not 0 < len(name) <= _MOST_NAME or len(self.streams) >= MOST_STREAMS:
            raise InvalidCall(
                f"an answer has {MOST_STREAMS} data streams at most, with names of 1 to {_MOST_NAME} characters"
            )


@dataclass(frozen=True, slots=True)
class RelayRequest(Request):
    """One request, as a plain handler gets it over the relay."""

    #: Read them before the handler returns.
    streams: Mapping[str, BlockingStream]
    _store: BlockingStreams
    _sent: AnswerStreams

    def send_stream(self, name: str, source: Path | Iterable[bytes]) -> None:
        """Send a data stream with the answer; returns once it is stored.

        Raises StreamLost, also where the request has ended meanwhile, and another RelayError.
        """
        self._sent.check(name)
        stream = self._store.store(name, source)
        try:
            self._sent.check(name)
        except StreamLost:
            stream.remove()
            raise
        self._sent.streams[name] = stream


@dataclass(frozen=True, slots=True)
class AsyncRelayRequest(Request):
    """One request, as an `async def` handler gets it over the relay."""

    #: Read them before the handler returns.
    streams: Mapping[str, StoredStream]
    _store: NodeStreams
    _sent: AnswerStreams

    async def send_stream(self, name: str, source: Source) -> None:
        """Send a data stream with the answer; returns once it is stored.

        Raises StreamLost, also where the request has ended meanwhile, and another RelayError.
        """
        self._sent.check(name)
        written: list[str] = []
        try:
            found = await stored(self._store, {name: source}, written)
            self._sent.check(name)
        except BaseException:
            await self._store.remove_all(written)
            raise
        self._sent.streams |= found
