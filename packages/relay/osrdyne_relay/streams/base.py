"""The interface of a store of data streams, and the handle that a receiver gets.

A stream is written once, whole, under an id that is never used again. It is removed when its call has ended, or by
`sweep` when it was not touched for as long as the store keeps streams.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Protocol, cast

from osrdyne_relay.errors import InvalidCall, StreamLost
from osrdyne_relay.redis.names import is_id, new_id

#: Bytes that are in memory at a time for each stream that is written or read.
CHUNK = 262_144

#: Ends each name that a store gives. Together with the id before it, it says that the relay wrote what has the name.
MARK = ".osrdyne-stream"

#: Where a stream comes from: chunks of bytes, or a file. Only programs on asyncio have chunks that are waited for.
Source = AsyncIterable[bytes] | Iterable[bytes] | Path


class DataStreams(Protocol):
    """A store that all nodes reach. Ids are those of `names.new_id`."""

    async def store(self, stream: str, chunks: AsyncIterable[bytes]) -> int:
        """Write a stream; return its bytes. It can be read when this returns, and is not there when this raises."""

    def read(self, stream: str) -> AsyncIterator[bytes]:
        """Return its chunks, which are read when they are asked for. Raises StreamLost where it is not there."""

    async def touch(self, stream: str) -> None:
        """Let `sweep` take it for new. Does nothing where it is not there."""

    async def remove(self, stream: str) -> None:
        """Remove it. Does nothing where it is not there."""

    async def sweep(self) -> int:
        """Remove what has expired, and what writers left that died; return how many."""


class StoredStream:
    """A stream that can be read lazily, more than once, until its call has ended."""

    def __init__(self, store: DataStreams, stream: str, size: int) -> None:
        self._store = store
        self.id = stream
        #: In bytes.
        self.size = size

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Give the chunks. Raises StreamLost where they are not there, or not all."""
        got = 0
        async for chunk in self._store.read(self.id):
            got += len(chunk)
            if got > self.size:
                break
            yield chunk
        if got != self.size:
            raise not_whole(self.id, got, self.size)

    async def save(self, path: Path) -> None:
        """Write it to a file. Raises StreamLost as iterating does."""
        with await asyncio.to_thread(path.open, "wb") as file:
            async for chunk in self:
                await asyncio.to_thread(file.write, chunk)

    async def remove(self) -> None:
        """Remove it from the store."""
        await self._store.remove(self.id)


class HandedStream(StoredStream):
    """A stream that is in the store before its call or answer is. That takes it as it is, and removes it as its own."""


async def stored(store: DataStreams, sources: Mapping[str, Source], written: list[str]) -> dict[str, StoredStream]:
    """Store streams, and note their ids in `written` before that. Raises StreamLost, or what the store raises."""
    found = {}
    for name, source in sources.items():
        if isinstance(source, HandedStream):
            written.append(source.id)
            found[name] = StoredStream(store, source.id, source.size)
            continue
        stream = new_id()
        written.append(stream)
        try:
            size = await store.store(stream, chunks_of(source))
        except OSError as error:
            raise StreamLost(f"data stream {name!r} cannot be stored: {error.strerror or error}") from error
        found[name] = StoredStream(store, stream, size)
    return found


def not_whole(stream: str, got: int, size: int) -> StreamLost:
    """Return the error of a stream that has `got` bytes, or more, in place of `size`."""
    return StreamLost(f"data stream {stream} has {got} bytes or more, and not the {size} that were written")


def checked(stream: str) -> str:
    """Return an id that can name a file or an object. Raises InvalidCall."""
    if not is_id(stream):
        raise InvalidCall("a data stream has no id of ours: streams are named by this library")
    return stream


def stored_name(stream: str) -> str:
    """Return the name of a stream's file or object. Raises InvalidCall."""
    return checked(stream) + MARK


def stream_in(name: str, ending: str) -> str | None:
    """Return the stream whose name this is, also with an ending; None for what the relay did not write."""
    stream = name.removesuffix(ending).removesuffix(MARK)
    return stream if is_id(stream) and name in (stream + MARK, stream + MARK + ending) else None


async def chunks_of(source: Source) -> AsyncIterator[bytes]:
    """Give the chunks of a source that are not empty. Raises InvalidCall for one that is not bytes."""
    async for chunk in _raw(source):
        if not chunk:
            continue
        if not isinstance(chunk, bytes | bytearray | memoryview):
            raise InvalidCall(f"a chunk of a data stream is not bytes, but of type {type(chunk).__name__}")
        yield chunk


async def _raw(source: Source) -> AsyncIterator[bytes]:
    if isinstance(source, AsyncIterable):
        async for chunk in source:
            yield chunk
        return
    if not isinstance(source, Path):
        chunks, end = iter(source), object()
        while (found := await asyncio.to_thread(next, chunks, end)) is not end:
            yield cast(bytes, found)
        return
    with await asyncio.to_thread(source.open, "rb") as file:
        while chunk := await asyncio.to_thread(file.read, CHUNK):
            yield chunk


class NoStreams:
    """Where no store is set up: bodies alone can be sent."""

    async def store(self, stream: str, chunks: AsyncIterable[bytes]) -> int:
        raise InvalidCall(
            "this node has no store of data streams: set one up (docs/howto/relay-streams.md), or send the body alone"
        )

    def read(self, stream: str) -> AsyncIterator[bytes]:
        raise StreamLost(f"this node has no store of data streams, so it cannot read {stream}: set up the callers' one")

    async def touch(self, stream: str) -> None:
        """There is none."""

    async def remove(self, stream: str) -> None:
        """There is none."""

    async def sweep(self) -> int:
        return 0
