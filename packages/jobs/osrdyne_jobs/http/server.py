"""Serves the application on an address until it is stopped."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterable
from typing import cast

import uvicorn
from sqlalchemy import Engine
from uvicorn.protocols.http.h11_impl import H11Protocol

from osrdyne_jobs.client import Caster
from osrdyne_jobs.errors import CannotServe
from osrdyne_jobs.http.app import create_app
from osrdyne_jobs.http.guard import Token
from osrdyne_jobs.job_types import JobType
from osrdyne_runtime import hosts, log_lines
from osrdyne_runtime.door import Door

logger = log_lines.logger(__name__)

#: Seconds for which requests under way may go on after the stop.
GRACE = 5
#: Most connections, and those that wait to be accepted.
_CONNECTIONS, _BACKLOG = 512, 128
MOST_PORT = 65_535


def serve(
    engine: Engine,
    *,
    host: str = "127.0.0.1",
    port: int,
    token: Token,
    types: Iterable[JobType] = (),
    client: Caster | None = None,
    stop: threading.Event,
    listening: Callable[[str], None] | None = None,
) -> None:
    """Serve the administration until `stop` is set; may be called from any thread.

    `port`: 0 lets the system choose one. `listening` gets the address of the page once it answers.
    `engine`, `token`, `types`, `client`: as `create_app`.

    Raises CannotServe where the address cannot be listened on, where it is no loopback address and there is no token,
    and for a token that is too short or cannot be sent.
    """
    door = Door(most=_CONNECTIONS)
    app = create_app(engine, token=token, types=types, client=client, let_in=door.let_in)
    with _listener(host, port, guarded=token is not None) as listener:
        address = _address(listener)
        config = uvicorn.Config(
            app,
            http=cast(type[asyncio.Protocol], door.around(H11Protocol)),  # it is only called
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=GRACE,
        )
        server = uvicorn.Server(config)
        # In a thread, uvicorn leaves the handlers of signals alone: those are the caller's, which sets `stop`.
        thread = threading.Thread(
            target=server.run, kwargs={"sockets": [listener]}, name="osrdyne-jobs-http", daemon=True
        )
        thread.start()
        try:
            logger.info("the administration of jobs is served", extra={"address": address})
            if listening is not None:
                listening(address)
            while thread.is_alive() and not stop.wait(0.5):
                pass
        finally:
            server.should_exit = True
            thread.join()
            app.state.backend.jobs.close()
    if not stop.is_set():
        raise CannotServe("the server ended by itself; its log has the reason")


def _listener(host: str, port: int, *, guarded: bool) -> socket.socket:
    """Return a socket that listens. Raises CannotServe."""
    if not 0 <= port <= MOST_PORT:  # the system would take the rest of a division
        raise CannotServe(f"{port} is no port: choose one from 1 to {MOST_PORT}, or 0 for any")
    try:
        family, kind, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        # The address, not the name: that may mean another machine.
        if not guarded and not hosts.is_loopback(str(where[0])):
            raise CannotServe(f"{host} can be reached from other machines: set a token, or listen on 127.0.0.1")
        listener = socket.socket(family, kind)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(where)
            listener.listen(_BACKLOG)
        except BaseException:
            listener.close()
            raise
    except OSError as error:
        reason = error.strerror or error
        raise CannotServe(f"cannot listen on {host}, port {port}: {reason}; choose another address or port") from error
    return listener


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"
