"""Serve endpoints from a machine that can only open connections outwards.

    from osrdyne_calls import Request
    from osrdyne_relay.worker import RelayWorker

    def handle(request: Request) -> bytes:
        return request.body.upper()

    RelayWorker("https://node:8044", "maps/LAX", handle, token_file=Path("/etc/osrdyne/relay.token")).run()

A handler is that of the worker library: the same function serves a pool over AMQP. `service` has `RelayWorker`.
Beneath it, `polling` gets requests by long polls and `websocket` over a WebSocket; `request_runner` has the handler
run, watches whether the request is still wanted, and answers. `requests` is what a handler gets.
Docs: docs/howto/relay.md.
"""

from osrdyne_runtime.console.imports import extra

with extra("osrdyne-relay[worker]"):
    from osrdyne_relay.worker.requests import AsyncRelayRequest, RelayRequest
    from osrdyne_relay.worker.service import RelayHandler, RelayWorker

__all__ = ["AsyncRelayRequest", "RelayHandler", "RelayRequest", "RelayWorker"]
