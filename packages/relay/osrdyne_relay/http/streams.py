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
from osrdyne_relay.http.middleware import CLIENT, SERVICE, check_plain
from osrdyne_relay.http.node_service import NodeService
from osrdyne_relay.streams.base import CHUNK, HandedStream


async def write(request: web.Request) -> web.StreamResponse:
    """Store a stream under the id that the client chose: 201 once it can be read, and its bytes."""
    service, stream = request.app[SERVICE], request.match_info["id"]
    check_plain(request)
    with _open(request):
        try:
            size = await service.relay.streams.store(stream, _sent(request, service))
        except OSError as error:
            raise StreamLost(f"the data stream cannot be stored: {error.strerror or error}") from error
    return web.json_response({"size": size}, status=201)


async def _sent(request: web.Request, service: NodeService) -> AsyncIterator[bytes]:
    most, size = service.settings.most_stream_bytes, 0
    while True:
        try:
            async with asyncio.timeout(service.settings.stream_pause):
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
    service = request.app[SERVICE]
    answer = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
    with _open(request):
        chunks = service.relay.streams.read(request.match_info["id"])
        # What is not there is said before an answer has begun.
        chunk = await anext(chunks, b"")
        await answer.prepare(request)
        try:
            while chunk:
                async with asyncio.timeout(service.settings.stream_pause):
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
        await request.app[SERVICE].relay.streams.remove(request.match_info["id"])
    return web.Response(status=204)


@contextmanager
def _open(request: web.Request) -> Iterator[None]:
    """Count what a client has open within the block: as many streams as it may have of all else."""
    service, client = request.app[SERVICE], request[CLIENT]
    if not (client.grant.call or client.grant.serve):
        raise AccessDenied
    if service.grace_over.is_set():
        raise NodeStopping
    with service.state.streaming(client.name, service.limit_of(client)):
        yield


def named_in(request: web.Request) -> Mapping[str, HandedStream]:
    """Return the streams that come with a body. Raises InvalidCall."""
    return handed_over(request.app[SERVICE], wire.load_streams(request.headers.get(wire.STREAMS_HEADER)))


def handed_over(service: NodeService, notes: Mapping[str, wire.StreamEntry]) -> Mapping[str, HandedStream]:
    """Return the streams that a client names. A call or an answer takes them over."""
    return {name: HandedStream(service.relay.streams, stored.id, stored.size) for name, stored in notes.items()}
