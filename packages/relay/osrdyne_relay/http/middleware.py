"""Every request over HTTP passes this: who asks, how long an answer may take, and how errors are answered.

A stranger gets one and the same answer, whatever it asks for. No answer holds a traceback or an address.
"""

from __future__ import annotations

import asyncio
import math

from aiohttp import web
from aiohttp.typedefs import Handler

from osrdyne_relay import wire
from osrdyne_relay.errors import AccessDenied, InvalidCall, NodeFailed, RelayError, TooLarge
from osrdyne_relay.http.access import KnownClient
from osrdyne_relay.http.node_service import NodeService
from osrdyne_relay.redis.names import check_endpoint
from osrdyne_runtime.serve import server

SERVICE: web.AppKey[NodeService] = web.AppKey("service", NodeService)
CLIENT: web.RequestKey[KnownClient] = web.RequestKey("client", KnownClient)
#: What a load balancer may ask without a token.
OPEN = frozenset({"/livez", "/readyz"})
#: Codes of HTTP's own errors.
_HTTP = {404: "NoSuchPath", 405: "NoSuchMethod", 413: "TooLarge"}


def identify(request: web.Request) -> bool:
    """Note which client asks. Return whether there is a client, and not a load balancer. Raises AccessDenied."""
    if request.path in OPEN:
        return False
    if "Origin" in request.headers:
        # A browser would show its user's certificate for a page of any site.
        raise AccessDenied("pages of browsers are not served")
    certificate = request.get_extra_info("peercert")
    request[CLIENT] = request.app[SERVICE].access.identify(request.headers.get("Authorization"), certificate)
    return True


def problem_of(request: web.Request, error: Exception) -> web.Response:
    """Return what an error is answered by."""
    service = request.app[SERVICE]
    if isinstance(error, web.HTTPException):
        code = _HTTP.get(error.status, "Refused")
        said = f"{error.reason}; docs/reference/relay-protocol.md has what there is"
        return _json(service, error.status, {"code": code, "error": said})
    if isinstance(error, RelayError):
        return _problem(service, error)
    return _problem(service, NodeFailed("this is an error of the node; its log has the details"), 500)


@web.middleware
async def send_in_time(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Send an answer, for a bounded time."""
    answer = await handler(request)
    if isinstance(answer, web.WebSocketResponse):
        return answer
    service = request.app[SERVICE]
    if service.stopping.is_set():
        # The next request over this connection could meet its end, and the client would not know whether it ran.
        answer.force_close()
    try:
        async with asyncio.timeout(service.settings.transfer_timeout):
            await answer.prepare(request)
            await answer.write_eof()
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
    return answer


def _problem(service: NodeService, error: RelayError, status: int = 502) -> web.Response:
    return _json(service, wire.STATUS_OF.get(type(error).__name__, status), wire.problem(error))


def _json(service: NodeService, status: int, said: dict[str, object]) -> web.Response:
    service.metrics.refused.labels(said["code"]).inc()
    answer = web.json_response(said, status=status)
    if status == 401:
        answer.headers["WWW-Authenticate"] = "Bearer"
    if status in (401, 408, 413):
        answer.force_close()
    return answer


# --- what handlers read of a request ------------------------------------------------------------------------------


def check_plain(request: web.Request) -> None:
    """Raise InvalidCall where a body is compressed."""
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise InvalidCall("a body must not be compressed: send it without Content-Encoding")


async def body_of(request: web.Request) -> bytes:
    """Return the body. Raises TooLarge, and InvalidCall where it is compressed."""
    check_plain(request)
    try:
        return await server.body_of(request, request.app[SERVICE].settings.transfer_timeout)
    except web.HTTPRequestEntityTooLarge as error:
        raise TooLarge(f"a body has at most {request.client_max_size} bytes: send less") from error


def endpoint_of(request: web.Request) -> str:
    """Return the endpoint that the query names. Raises InvalidCall."""
    return check_endpoint(request.query.get("endpoint", ""))


def seconds_of(request: web.Request, name: str, default: float | None, most: float = math.inf) -> float | None:
    """Return a time of the query in seconds, `most` of them at most. Raises InvalidCall."""
    text = request.query.get(name)
    if text is None:
        return default
    try:
        seconds = float(text) if len(text) <= 32 else math.nan
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise InvalidCall(f"`{name}` is a number of seconds")
    return min(seconds, most)


def relay_headers_of(request: web.Request) -> dict[str, str]:
    """Return the relay's headers that come with a body. Raises InvalidCall."""
    return wire.load_headers(request.headers.get(wire.HEADERS_HEADER))
