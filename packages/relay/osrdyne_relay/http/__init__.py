"""A node to which workers and callers connect over HTTPS: `osrdyne relay serve`.

    await serve(settings, stop)

`server` listens and stops in good order, on the base of all servers, `osrdyne_runtime.serve`. `app` has the routes, and
what all requests pass: `access` decides who a client is and what it may do, `answering` turns results and errors into
answers. `workers` has polls and what becomes of requests, `sockets` the same over a WebSocket, `callers` has calls, and
`streams` data streams. They share the `desk`: the relay, what each client has open, and the requests in hand; `ledger`
is its bookkeeping, which is pure. `metrics` has the figures. Between node and client goes what `osrdyne_relay.wire`
says. Docs: docs/reference/relay-protocol.md.
"""

from osrdyne_relay.http.server import serve

__all__ = ["serve"]
