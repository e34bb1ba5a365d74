"""The HTTP endpoints: `/healthz`, `/readyz`, `/metrics`, `/status`. Loopback by default; none changes anything."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from prometheus_client import Gauge

from osrdyne.errors import DaemonError
from osrdyne.metrics import Metrics
from osrdyne.settings.daemon import StatusSettings
from osrdyne.status import view as status_view
from osrdyne_runtime import hosts
from osrdyne_runtime.door import Door
from osrdyne_runtime.serve import answers
from osrdyne_runtime.serve.listening import CannotListen, listen
from osrdyne_runtime.serve.server import entrance, served

log = logging.getLogger(__name__)

#: Most connections.
_CONNECTIONS = 256
_OTHER_NAME = "not asked for by a name of this server: use its address, or add the name to `status.names`\n"


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
        return answers.metrics(metrics.registry)

    async def status(_: web.Request) -> web.Response:
        return web.json_response(document())

    def is_known(request: web.Request) -> bool:
        if not hosts.may_name(request.headers.get("Host", ""), (settings.host, *settings.names)):
            raise web.HTTPForbidden(text=_OTHER_NAME)
        return True

    door = Door(most=_CONNECTIONS)
    application = web.Application(middlewares=[entrance(door.let_in, is_known)])
    answers.add_headers(application)
    application.add_routes(
        [
            web.get("/healthz", answers.alive),
            web.get("/readyz", answers.readiness(not_ready)),
            web.get("/metrics", show_metrics),
            web.get("/status", status),
        ]
    )
    try:
        listeners = listen(settings.host, settings.port)
    except CannotListen as error:
        where = f"{settings.host}:{settings.port}"
        raise StatusUnavailable(f"cannot listen on {where}: {error.reason}; set status.port to a free one") from error
    port: int = listeners[0].getsockname()[1]
    async with served(application, listeners, door):
        log.info("status served", extra={"host": settings.host, "port": port})
        yield port


def _mark(gauge: Gauge, queues: Iterable[str]) -> None:
    """Set a gauge to 1 for these queues, and leave all others out."""
    gauge.clear()
    for queue in queues:
        gauge.labels(queue).set(1)
