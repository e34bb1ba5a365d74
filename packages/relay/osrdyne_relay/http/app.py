"""The application: all routes, behind what every request passes."""

from __future__ import annotations

from aiohttp import web

from osrdyne_relay import wire
from osrdyne_relay.http import callers, sockets, streams, workers
from osrdyne_relay.http.middleware import CLIENT, SERVICE, identify, problem_of, send_in_time
from osrdyne_relay.http.node_service import NodeService
from osrdyne_runtime.door import Door
from osrdyne_runtime.serve import answers
from osrdyne_runtime.serve.server import entrance

#: A request's path below `wire.REQUESTS`.
_ONE = wire.REQUESTS + "/{id:[0-9a-f]{32}}"
#: A data stream's.
_STREAM = wire.STREAMS + "/{id:[0-9a-f]{32}}"
#: Strangers do not learn why not.
_NOT_READY = "not ready; the log says why"


def create_app(service: NodeService, most_bytes: int, door: Door) -> web.Application:
    """Return the application of a node. `most_bytes`: of a body."""
    app = web.Application(
        middlewares=[send_in_time, entrance(door.let_in, identify, problem_of)], client_max_size=most_bytes
    )
    app[SERVICE] = service
    answers.add_headers(app)
    app.add_routes(
        [
            web.get("/livez", answers.alive),
            web.get("/readyz", answers.readiness(lambda: None if service.ready else _NOT_READY)),
            web.get("/metrics", _metrics),
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


async def _metrics(request: web.Request) -> web.Response:
    service = request.app[SERVICE]
    request[CLIENT].may_read_metrics()
    service.update_metrics()
    return answers.metrics(service.metrics.registry)
