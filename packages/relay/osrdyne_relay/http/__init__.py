"""A node to which workers and callers connect over HTTPS: `osrdyne relay serve`.

    await serve(settings, stop)

`server` listens and stops in good order, on the base of all servers, `osrdyne_runtime.serve`. `app` has the routes, and
what all requests pass: `access` decides who a client is and what it may do, `middleware` turns results and errors into
answers. `workers` has polls and how requests end, `sockets` the same over a WebSocket, `callers` has calls, and
`streams` data streams. All of them use the `node_service`, which collects and settles requests; `node_state` says what
each client has open and which requests are in hand, and is pure. `metrics` has the figures. `osrdyne_relay.wire` is the
format between node and client. Docs: docs/reference/relay-protocol.md.
"""

from osrdyne_runtime.console.imports import extra

with extra("osrdyne-relay[node]"):
    from osrdyne_relay.http.server import serve

__all__ = ["serve"]
