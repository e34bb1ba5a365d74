"""Workers that poll: a long poll for the next request, and what becomes of a request."""

from __future__ import annotations

from aiohttp import web

from osrdyne_relay import wire
from osrdyne_relay.errors import InvalidCall
from osrdyne_relay.http import streams
from osrdyne_relay.http.middleware import CLIENT, SERVICE, body_of, endpoint_of, relay_headers_of, seconds_of
from osrdyne_relay.http.node_state import HeldRequest
from osrdyne_relay.messages import Answer
from osrdyne_relay.redis.names import is_id

#: Seconds that a poll waits, unless it says otherwise.
_WAIT_SECONDS = 30.0
#: Most bytes of the reason of a failure.
_MOST_REASON = 8000


async def poll(request: web.Request) -> web.StreamResponse:
    """Give the next request of an endpoint: 200 with the request, or 204 when there was none."""
    service, client, endpoint = request.app[SERVICE], request[CLIENT], endpoint_of(request)
    client.may_serve(endpoint)
    wait = seconds_of(request, "wait", _WAIT_SECONDS, service.settings.longest_poll)
    name = request.query.get("poll")
    if name is not None and not is_id(name):
        raise InvalidCall("`poll` is a name of 32 hexadecimal digits")
    held = await service.collect(client, endpoint, wait or 0.0, name)
    if held is None:
        return web.Response(status=204)
    if request.transport is None or request.transport.is_closing():
        service.put_back(held)
        raise ConnectionResetError
    collected = held.collected
    # From here on the worker may have it.
    return web.Response(
        body=collected.body,
        headers={
            wire.ID_HEADER: collected.id,
            wire.HEADERS_HEADER: wire.dump_headers(collected.headers),
            **wire.dump_streams(collected.streams),
            "Content-Type": "application/octet-stream",
        },
    )


async def end_poll(request: web.Request) -> web.StreamResponse:
    """End a poll that waits: it is answered at once. A worker that stops needs no broken connection so."""
    request.app[SERVICE].end_poll(request[CLIENT], request.query.get("poll", ""))
    return web.Response(status=204)


async def respond(request: web.Request) -> web.StreamResponse:
    """Take the answer to a request."""
    service, held = request.app[SERVICE], _held_request(request)
    with service.worker_connected(held):
        headers = relay_headers_of(request)
        await service.answer(held, Answer(await body_of(request), headers, streams.named_in(request)))
    return web.Response(status=204)


async def fail(request: web.Request) -> web.StreamResponse:
    """Take the reason why a request has no answer."""
    service, held = request.app[SERVICE], _held_request(request)
    with service.worker_connected(held):
        reason = await body_of(request)
        if len(reason) > _MOST_REASON:
            raise InvalidCall(f"a reason has at most {_MOST_REASON} bytes")
        await service.fail(held, reason.decode("utf-8", "replace") or "the worker gives no reason")
    return web.Response(status=204)


async def give_back(request: web.Request) -> web.StreamResponse:
    """Take back a request that the worker has not begun, for the next one."""
    service, held = request.app[SERVICE], _held_request(request)
    service.put_back(held)
    return web.Response(status=204)


async def news(request: web.Request) -> web.StreamResponse:
    """Say when a request is no longer wanted: 200 and why, or 204 when nothing happened. It is a sign of life, too."""
    service, held = request.app[SERVICE], _held_request(request)
    why = await service.news(held, seconds_of(request, "wait", _WAIT_SECONDS, service.settings.longest_poll) or 0.0)
    return web.Response(status=204) if why is None else web.json_response(wire.problem(why))


def _held_request(request: web.Request) -> HeldRequest:
    return request.app[SERVICE].state.find(request[CLIENT].name, request.match_info["id"])
