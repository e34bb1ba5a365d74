"""What monitoring reads: whether the process lives, whether the node can work, and its figures."""

from __future__ import annotations

from aiohttp import web

from osrdyne_relay.http import metrics
from osrdyne_relay.http.answering import CLIENT, DESK


async def livez(_: web.Request) -> web.StreamResponse:
    """Answer, which is enough."""
    return web.Response(text="ok\n")


async def readyz(request: web.Request) -> web.StreamResponse:
    """Say whether polls and calls can be answered now. Strangers do not learn why not."""
    ready = request.app[DESK].ready
    return web.Response(text="ready\n" if ready else "not ready; the log says why\n", status=200 if ready else 503)


async def show_metrics(request: web.Request) -> web.StreamResponse:
    """Give the figures."""
    desk = request.app[DESK]
    request[CLIENT].may_read_metrics()
    desk.count()
    return web.Response(body=desk.metrics.render(), headers={"Content-Type": metrics.CONTENT_TYPE})
