"""What all servers answer: whether they live and are ready, their metrics, and the headers of every answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

#: Sent with every answer.
HEADERS = {"Server": "osrdyne", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def add_headers(app: web.Application, more: Mapping[str, str] | None = None) -> None:
    """Have every answer of an application bring `HEADERS`, and those of `more`."""
    headers = {**HEADERS, **(more or {})}

    async def add(_: web.Request, answer: web.StreamResponse) -> None:
        answer.headers.update(headers)

    app.on_response_prepare.append(add)


async def alive(_: web.Request) -> web.Response:
    """Answer, which is enough to know that the process lives."""
    return web.Response(text="ok\n")


def readiness(not_ready: Callable[[], str | None]) -> Handler:
    """Return what answers whether the server can do its work. `not_ready` returns why it cannot, or None."""

    async def ready(_: web.Request) -> web.Response:
        reason = not_ready()
        return web.Response(text=f"{reason or 'ready'}\n", status=503 if reason else 200)

    return ready


def metrics(registry: CollectorRegistry) -> web.Response:
    """Return metrics in the text format of Prometheus. Raises what their collectors raise."""
    return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})
