"""The application: all routes, behind `answering.around`."""

from __future__ import annotations

from aiohttp import web

from osrdyne_relay import wire
from osrdyne_relay.http import callers, health, sockets, streams, workers
from osrdyne_relay.http.answering import DESK, DOOR, around
from osrdyne_relay.http.desk import Desk
from osrdyne_runtime.door import Door

#: A request's path below `wire.REQUESTS`.
_ONE = wire.REQUESTS + "/{id:[0-9a-f]{32}}"
#: A data stream's.
_STREAM = wire.STREAMS + "/{id:[0-9a-f]{32}}"


def create_app(desk: Desk, most_bytes: int, door: Door) -> web.Application:
    """Return the application of a node. `most_bytes`: of a body."""
    app = web.Application(middlewares=[around], client_max_size=most_bytes)
    app[DESK], app[DOOR] = desk, door
    app.add_routes(
        [
            web.get("/livez", health.livez),
            web.get("/readyz", health.readyz),
            web.get("/metrics", health.show_metrics),
            web.post(wire.CALL, callers.call),
            web.post(wire.POLL, workers.poll),
            web.get(wire.SOCKET, sockets.socket),
            web.delete(wire.POLL, workers.end_poll),
            web.post(_ONE + "/response", workers.respond),
            web.post(_ONE + "/failure", workers.fail),
            web.post(_ONE + "/return", workers.give_back),
            web.get(_ONE + "/news", workers.news),
            web.put(_STREAM, streams.write),
            web.get(_STREAM, streams.read, allow_head=False),
            web.delete(_STREAM, streams.remove),
        ]
    )
    return app
