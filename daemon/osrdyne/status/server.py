"""The HTTP endpoints: `/healthz`, `/readyz`, `/metrics`, `/status`. Loopback by default; none changes anything."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import http_exceptions, web
from aiohttp.typedefs import Handler, Middleware
from prometheus_client import Gauge

from osrdyne.errors import DaemonError
from osrdyne.metrics import Metrics
from osrdyne.settings.daemon import StatusSettings
from osrdyne.status import view as status_view
from osrdyne_protocol.foreign_json import is_unicode
from osrdyne_runtime import hosts
from osrdyne_runtime.door import Door, address_of

log = logging.getLogger(__name__)

_Answering = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

#: Most connections, and the seconds for which one of them may be idle.
_CONNECTIONS, _IDLE = 256, 75.0
_OTHER_NAME = "not asked for by a name of this server: use its address, or add the name to `status.names`\n"


class _OwnErrors(logging.Filter):
    """Passes records of our own errors. An error in a client's request is in its answer, and is not logged."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, http_exceptions.HttpProcessingError)


logging.getLogger("aiohttp.server").addFilter(_OwnErrors())


class StatusUnavailable(DaemonError):
    """The status address cannot be listened on."""


@asynccontextmanager
async def serve(
    settings: StatusSettings,
    metrics: Metrics,
    *,
    document: Callable[[], dict[str, Any]],
    not_ready: Callable[[], str | None],
) -> AsyncIterator[int]:
    """Serve while the context is open; yields the port. `not_ready` returns why the daemon cannot work, or None.

    A leader and a standby are both ready: a standby can take over.
    """

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        reason = not_ready()
        return web.Response(text=f"{reason or 'ready'}\n", status=503 if reason else 200)

    async def show_metrics(_: web.Request) -> web.Response:
        shown = document()
        for state, number in status_view.keys_by_state(shown).items():
            metrics.keys.labels(state).set(number)
        metrics.alarm.set(shown["alarm"] is not None)
        metrics.depths.clear()
        for queue, messages in shown["queues"].items():
            if messages is not None:
                metrics.depths.labels(queue).set(messages)
        _mark(metrics.shared, shown["queues_with_other_consumers"])
        _mark(metrics.lost, shown["static_queues_lost"])
        return web.Response(body=metrics.render(), content_type="text/plain", charset="utf-8")

    async def status(_: web.Request) -> web.Response:
        return web.json_response(document())

    door = Door(most=_CONNECTIONS)

    application = web.Application(middlewares=[_known(settings, door)])
    application.add_routes(
        [
            web.get("/healthz", healthz),
            web.get("/readyz", readyz),
            web.get("/metrics", show_metrics),
            web.get("/status", status),
        ]
    )
    runner = web.AppRunner(application, access_log=None, keepalive_timeout=_IDLE)
    await runner.setup()
    try:
        server = await _listening(settings, door, runner)
        try:
            port: int = server.sockets[0].getsockname()[1]
            log.info("status served", extra={"host": settings.host, "port": port})
            yield port
        finally:
            server.close()
            door.close()
    finally:
        await runner.cleanup()


def _known(settings: StatusSettings, door: Door) -> Middleware:
    """Return what refuses requests for names of others."""

    @web.middleware
    async def known(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not hosts.may_name(request.headers.get("Host", ""), (settings.host, *settings.names)):
            raise web.HTTPForbidden(text=_OTHER_NAME)
        door.let_in(address_of(request.transport))
        return await handler(request)

    return known


def _of_text(handler: _Answering) -> _Answering:
    """Return a handler that refuses headers that are not text: aiohttp quotes some, and cannot encode them."""

    async def answered(request: web.BaseRequest) -> web.StreamResponse:
        if not is_unicode("".join(request.headers.values())):
            raise web.HTTPBadRequest(text="a header is not UTF-8 text\n")
        return await handler(request)

    return answered


async def _listening(settings: StatusSettings, door: Door, runner: web.AppRunner) -> asyncio.Server:
    assert runner.server is not None
    runner.server.request_handler = _of_text(runner.server.request_handler)
    protocols = door.around(runner.server)
    try:
        return await asyncio.get_running_loop().create_server(protocols, settings.host, settings.port)
    except OSError as error:
        raise StatusUnavailable(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}; "
            "set status.port to a free one"
        ) from error


def _mark(gauge: Gauge, queues: Iterable[str]) -> None:
    """Set a gauge to 1 for these queues, and leave all others out."""
    gauge.clear()
    for queue in queues:
        gauge.labels(queue).set(1)
