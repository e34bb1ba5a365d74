"""What every request over HTTP passes: who asks, how long it may take, and how results and errors are answered.

A stranger gets one and the same answer, whatever it asks for. No answer holds a traceback or an address.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable

from aiohttp import http_exceptions, web

from osrdyne_protocol.foreign_json import is_unicode
from osrdyne_relay import wire
from osrdyne_relay.errors import AccessDenied, InvalidCall, NodeFailed, RelayError, TooLarge
from osrdyne_relay.http.access import KnownClient
from osrdyne_relay.http.desk import Desk
from osrdyne_relay.redis.names import check_endpoint
from osrdyne_runtime import log_lines
from osrdyne_runtime.door import Door, address_of

log = log_lines.logger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_Answering = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

DOOR: web.AppKey[Door] = web.AppKey("door", Door)
DESK: web.AppKey[Desk] = web.AppKey("desk", Desk)
CLIENT: web.RequestKey[KnownClient] = web.RequestKey("client", KnownClient)
#: What a load balancer may ask without a token.
OPEN = frozenset({"/livez", "/readyz"})
HEADERS = {"Server": "osrdyne", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
#: Codes of HTTP's own errors.
_HTTP = {404: "NoSuchPath", 405: "NoSuchMethod", 413: "TooLarge"}


class _OwnErrors(logging.Filter):
    """Passes records of our own errors. An error in a client's request is in its answer, and is not logged.

    Neither is a client that has gone before its answer: strangers could fill the log.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, (http_exceptions.HttpProcessingError, ConnectionError))


logging.getLogger("aiohttp.server").addFilter(_OwnErrors())


def of_text(handler: _Answering) -> _Answering:
    """Return a handler that refuses headers that are not text: aiohttp quotes some, and cannot encode them."""

    async def answered(request: web.BaseRequest) -> web.StreamResponse:
        if not is_unicode("".join(request.headers.values())):
            raise web.HTTPBadRequest(text="a header is not UTF-8 text\n", headers=HEADERS)
        return await handler(request)

    return answered


@web.middleware
async def around(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer a request."""
    desk = request.app[DESK]
    try:
        if request.path not in OPEN:
            _identify(desk, request)
            request.app[DOOR].let_in(address_of(request.transport))
        answer = await handler(request)
    except RelayError as error:
        answer = problem(desk, error)
    except web.HTTPException as error:
        code = _HTTP.get(error.status, "Refused")
        answer = _json(
            desk,
            error.status,
            {"code": code, "error": f"{error.reason}; docs/reference/relay-protocol.md has what there is"},
        )
    except ConnectionError:
        raise  # there is no one to answer
    except Exception:
        log.exception("a request over HTTP failed", extra={"method": request.method})
        answer = problem(desk, NodeFailed("this is an error of the node; its log has the details"), 500)
    return await _sent(desk, request, answer)


def _identify(desk: Desk, request: web.Request) -> None:
    if "Origin" in request.headers:
        # A browser would show its user's certificate for a page of any site.
        raise AccessDenied("pages of browsers are not served")
    certificate = request.get_extra_info("peercert")
    request[CLIENT] = desk.access.identify(request.headers.get("Authorization"), certificate)


async def _sent(desk: Desk, request: web.Request, answer: web.StreamResponse) -> web.StreamResponse:
    """Send an answer, for a bounded time."""
    if isinstance(answer, web.WebSocketResponse):
        return answer
    answer.headers.update(HEADERS)
    if CLIENT not in request:
        answer.force_close()  # a stranger's
    if desk.stopping.is_set():
        # The next request over this connection could meet its end, and the client would not know whether it ran.
        answer.force_close()
    try:
        async with asyncio.timeout(desk.settings.transfer_timeout):
            await answer.prepare(request)
            await answer.write_eof()
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
    return answer


def problem(desk: Desk, error: RelayError, status: int = 502) -> web.Response:
    """Return an error as an answer."""
    return _json(desk, wire.STATUS_OF.get(type(error).__name__, status), wire.problem(error))


def _json(desk: Desk, status: int, said: dict[str, object]) -> web.Response:
    desk.metrics.refused.labels(said["code"]).inc()
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
        async with asyncio.timeout(request.app[DESK].settings.transfer_timeout):
            return await request.read()
    except TimeoutError:
        raise web.HTTPRequestTimeout from None
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
