"""Callers: one HTTP request is one call. A caller that closes its connection cancels its call."""

from __future__ import annotations

from aiohttp import web

from osrdyne_relay import wire
from osrdyne_relay.errors import CallFailed, NodeStopping, RelayError, TooLarge
from osrdyne_relay.http import streams
from osrdyne_relay.http.middleware import CLIENT, SERVICE, body_of, endpoint_of, relay_headers_of, seconds_of
from osrdyne_relay.http.node_service import NodeService
from osrdyne_relay.messages import Request, Response


async def call(request: web.Request) -> web.StreamResponse:
    """Call an endpoint, and answer with the response."""
    service, client, endpoint = request.app[SERVICE], request[CLIENT], endpoint_of(request)
    client.may_call(endpoint)
    with service.opened(client):
        timeout, pickup = seconds_of(request, "timeout", None), seconds_of(request, "pickup_timeout", None)
        headers = relay_headers_of(request)
        sent = Request(await body_of(request), headers, streams.named_in(request))
        if service.stopping.is_set():
            raise NodeStopping
        response = await _counted(service, endpoint, sent, timeout, pickup)
        try:
            # The caller removes the streams once it has read them.
            shown = {wire.HEADERS_HEADER: wire.dump_headers(response.headers), **wire.dump_streams(response.streams)}
        except TooLarge as error:
            await response.close()
            raise CallFailed(f"the request has run, and its response does not pass over HTTP: {error}") from None
        return web.Response(body=response.body, headers={**shown, "Content-Type": "application/octet-stream"})


async def _counted(
    service: NodeService, endpoint: str, request: Request, timeout: float | None, pickup: float | None
) -> Response:
    outcome = "cancelled_by_caller"
    service.calls += 1
    try:
        response = await service.relay.queue_and_wait(endpoint, request, timeout=timeout, pickup_timeout=pickup)
        outcome = "answered"
        return response
    except RelayError as error:
        outcome = type(error).__name__
        raise
    finally:
        service.calls -= 1
        service.metrics.calls.labels(outcome).inc()
