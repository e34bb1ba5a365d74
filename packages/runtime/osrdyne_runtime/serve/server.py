"""Serves an application of aiohttp with bounds: connections, half requests, bodies that were refused, and its end.

An error in a stranger's request is in its answer and in no log. Neither is a client that goes before its answer.
Otherwise, strangers could fill the log.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import http_exceptions, web
from aiohttp.typedefs import Handler, Middleware

from osrdyne_protocol.foreign_json import is_unicode
from osrdyne_runtime import log_lines
from osrdyne_runtime.door import Door, address_of
from osrdyne_runtime.serve.answers import HEADERS
from osrdyne_runtime.serve.listening import BACKLOG

log = log_lines.logger(__name__)

#: Seconds for which a connection may be idle, for the rest of a body that was refused, and for handlers at the end.
_IDLE_SECONDS, _LINGER_SECONDS, _LAST_SECONDS = 75.0, 2.0, 5.0
#: Seconds at the end in which connections get an answer to one more request.
_UNANSWERED_SECONDS = 1.0


class _OwnErrors(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, (http_exceptions.HttpProcessingError, ConnectionError))


log.logger.addFilter(_OwnErrors())


@asynccontextmanager
async def served(
    app: web.Application,
    listeners: list[socket.socket],
    door: Door,
    *,
    idle: float = _IDLE_SECONDS,
    **options: Any,
) -> AsyncIterator[None]:
    """Serve on sockets that listen while the context is open; they are closed at its end.

    Then, connections that are open get an answer to one more request, for 1 second. A request under way may go on for 5
    seconds, and is cancelled after 5 more. `options` are those of aiohttp's RequestHandler.
    """
    runner = web.AppRunner(
        app,
        logger=log.logger,
        access_log=None,
        keepalive_timeout=idle,
        lingering_time=_LINGER_SECONDS,
        shutdown_timeout=_LAST_SECONDS,
        auto_decompress=False,
        **options,
    )
    ends = asyncio.Event()
    try:
        await runner.setup()
        assert runner.server is not None
        runner.server.request_handler = _answering(runner.server.request_handler, ends)
        loop, protocols = asyncio.get_running_loop(), door.around(runner.server)
        servers = [await loop.create_server(protocols, sock=listener, backlog=BACKLOG) for listener in listeners]
        try:
            yield
            ends.set()
            # The loop takes the connections that the system has accepted: it accepts, and begins each a step later.
            for _ in range(3):
                await asyncio.sleep(0)
            for server in servers:
                server.close()
            # Without an answer, a client cannot know whether its request ran.
            await door.emptied(_UNANSWERED_SECONDS)
        finally:
            for server in servers:
                server.close()
            door.close()
    finally:
        for listener in listeners:
            listener.close()
        await runner.cleanup()


def entrance(
    let_in: Callable[[object], None] | None,
    is_known: Callable[[web.Request], bool],
    problem: Callable[[web.Request, Exception], web.StreamResponse] | None = None,
) -> Middleware:
    """Return what every request passes.

    `is_known` returns whether the client has shown who it is, and raises where a request is refused. `let_in`, that of
    a `Door`, gets the address of a client that is known. The connection of any other ends with its answer.
    `problem` makes an answer of an error. What it answers by 500 is an error of ours, and is logged. Without it, errors
    of HTTP are texts.
    """

    @web.middleware
    async def passed(request: web.Request, handler: Handler) -> web.StreamResponse:
        known = False
        try:
            known = is_known(request)
            if known and let_in is not None:
                let_in(address_of(request.transport))
            answer = await handler(request)
        except ConnectionError:
            raise  # there is no one to answer
        except Exception as error:
            if problem is None:
                raise
            answer = problem(request, error)
            if answer.status == 500:
                log.exception("a request over HTTP failed", extra={"method": request.method})
        if not known:
            answer.force_close()
        return answer

    return passed


async def body_of(request: web.Request, within: float) -> bytes:
    """Return the body of a request, which has so many seconds to come.

    Raises web.HTTPRequestTimeout, and web.HTTPRequestEntityTooLarge.
    """
    try:
        async with asyncio.timeout(within):
            return await request.read()
    except TimeoutError:
        raise web.HTTPRequestTimeout from None


def _answering(handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], ends: asyncio.Event) -> Any:
    """Return a handler that refuses headers that are not text: aiohttp quotes some, and cannot encode them.

    Once the server ends, each connection ends with its answer.
    """

    async def answered(request: web.BaseRequest) -> web.StreamResponse:
        if not is_unicode("".join(request.headers.values())):
            raise web.HTTPBadRequest(text="a header is not UTF-8 text\n", headers=HEADERS)
        answer = await handler(request)
        if ends.is_set():
            answer.force_close()
        return answer

    return answered
