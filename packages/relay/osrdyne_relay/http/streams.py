"""Data streams over HTTP: a client writes one before the call or answer that names it, and reads one by its id.

An id is 128 random bits, which only both sides of a call and their nodes know: who knows it may read the stream. All
nodes have one store, so a stream may be written and read at any of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager

from aiohttp import web

from osrdyne_relay import wire
from osrdyne_relay.errors import AccessDenied, NodeStopping, StreamLost, TooLarge
from osrdyne_relay.http.answering import CLIENT, DESK, check_plain
from osrdyne_relay.http.desk import Desk
from osrdyne_relay.streams.base import CHUNK, HandedStream


async def write(request: web.Request) -> web.StreamResponse:
    """Store a stream under the id that the client chose: 201 once it can be read, and its bytes."""
    desk, stream = request.app[DESK], request.match_info["id"]
    check_plain(request)
    with _open(request):
        try:
            size = await desk.relay.streams.store(stream, _sent(request, desk))
        except OSError as error:
            raise StreamLost(f"the data stream cannot be stored: {error.strerror or error}") from error
    return web.json_response({"size": size}, status=201)


async def _sent(request: web.Request, desk: Desk) -> AsyncIterator[bytes]:
    most, size = desk.settings.most_stream_bytes, 0
    while True:
        try:
            async with asyncio.timeout(desk.settings.stream_pause):
                chunk = await request.content.read(CHUNK)
        except TimeoutError:
            raise web.HTTPRequestTimeout from None
        if not chunk:
            return
        size += len(chunk)
        if size > most:
            raise TooLarge(f"a data stream has at most {most} bytes here: send less, or raise `most_stream_bytes`")
        yield chunk


async def read(request: web.Request) -> web.StreamResponse:
    """Give a stream, as fast as the client takes it. Where its rest is lost, the connection ends before its end."""
    desk = request.app[DESK]
    answer = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
    with _open(request):
        chunks = desk.relay.streams.read(request.match_info["id"])
        # What is not there is said before an answer has begun.
        chunk = await anext(chunks, b"")
        await answer.prepare(request)
        try:
            while chunk:
                async with asyncio.timeout(desk.settings.stream_pause):
                    await answer.write(chunk)
                chunk = await anext(chunks, b"")
        except (StreamLost, OSError) as error:  # a TimeoutError is an OSError
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError from error
    return answer


async def remove(request: web.Request) -> web.StreamResponse:
    """Remove a stream that is no longer needed, or that no call or answer came for."""
    with _open(request):
        await request.app[DESK].relay.streams.remove(request.match_info["id"])
    return web.Response(status=204)


@contextmanager
def _open(request: web.Request) -> Iterator[None]:
    """Count what a client has open within the block: as many streams as it may have of all else."""
    desk, client = request.app[DESK], request[CLIENT]
    if not (client.grant.call or client.grant.serve):
        raise AccessDenied
    if desk.over.is_set():
        raise NodeStopping
    with desk.ledger.streaming(client.name, desk.most(client)):
        yield


def named_in(request: web.Request) -> Mapping[str, HandedStream]:
    """Return the streams that come with a body. Raises InvalidCall."""
    return taken(request.app[DESK], wire.load_streams(request.headers.get(wire.STREAMS_HEADER)))


def taken(desk: Desk, notes: Mapping[str, wire.Stored]) -> Mapping[str, HandedStream]:
    """Return the streams that a client names, for a call or an answer that takes them over."""
    return {name: HandedStream(desk.relay.streams, stored.id, stored.size) for name, stored in notes.items()}
