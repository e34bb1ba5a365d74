"""Listens, serves until it is stopped, and ends in good order."""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

from aiohttp import web

from osrdyne_protocol.errors import SettingsError
from osrdyne_relay import Relay
from osrdyne_relay.http.access import Access, WatchedFiles
from osrdyne_relay.http.answering import of_text
from osrdyne_relay.http.app import create_app
from osrdyne_relay.http.desk import Desk
from osrdyne_relay.keepalive import keep_alive
from osrdyne_relay.settings import RelaySettings, ServeSettings
from osrdyne_relay.wire import MOST_HEADER
from osrdyne_runtime import certificates, hosts, log_lines
from osrdyne_runtime.door import Door

log = log_lines.logger(__name__)

_BACKLOG = 1024
#: Seconds for the rest of a body that was refused, and for handlers at the end.
_LINGER, _LAST = 2.0, 5.0
#: Seconds in which requests that came last are answered that the node stops.
_UNANSWERED = 1.0
#: Bytes that are read ahead of a connection, twice as many at most.
_READ = 65_536
#: Files that a process has open beside its connections.
_OTHER_FILES = 256


async def serve(
    settings: RelaySettings, stop: asyncio.Event, *, listening: Callable[[str], None] | None = None
) -> None:
    """Serve a node until `stop` is set, and `grace` seconds more for what is under way.

    `listening` gets the address once it answers. Raises SettingsError, also where the address cannot be listened on.
    """
    own = settings.serve
    if own is None:
        raise SettingsError("relay.serve", "is missing; give this table with at least an `access_file`")
    tls, relay = _tls(own), Relay(settings)
    desk = Desk(relay, Access.read(own.access_file), own)
    listener = _listener(own)
    _allow_files(own.connections + _OTHER_FILES)
    door = Door(most=own.connections, tls=tls, most_waiting=own.strangers, patience=own.stranger_timeout)
    runner = web.AppRunner(
        create_app(desk, settings.most_bytes, door),
        handler_cancellation=True,
        access_log=None,
        keepalive_timeout=own.idle_timeout,
        max_field_size=MOST_HEADER + 256,
        max_headers=40,
        read_bufsize=_READ,
        lingering_time=_LINGER,
        auto_decompress=False,
        shutdown_timeout=_LAST,
    )
    await runner.setup()
    try:
        async with relay:
            assert runner.server is not None
            desk.metrics.connections.set_function(lambda: door.connections)
            runner.server.request_handler = of_text(runner.server.request_handler)
            protocols = door.around(runner.server)
            server = await asyncio.get_running_loop().create_server(protocols, sock=listener, backlog=_BACKLOG)
            try:
                address = _address(listener, tls is not None)
                log.info("the node is served", extra={"address": address})
                if listening is not None:
                    listening(address)
                await _until(stop, desk, relay, [*desk.roots(), *_watching(own, desk, tls)])
                await asyncio.sleep(0)  # the loop takes the connections that the system has accepted
                server.close()
                # Without an answer, a client cannot know whether its request ran.
                await door.emptied(_UNANSWERED)
            finally:
                server.close()
                door.close()
    finally:
        listener.close()
        await runner.cleanup()


async def _until(stop: asyncio.Event, desk: Desk, relay: Relay, roots: list[Coroutine[Any, Any, None]]) -> None:
    """Have the node work until it is stopped, and end it in good order. Raises what ends one of its roots."""
    running: list[asyncio.Task[Any]] = [asyncio.create_task(one) for one in roots]
    stopped = asyncio.create_task(stop.wait())
    try:
        done, _ = await asyncio.wait([stopped, *running], return_when=asyncio.FIRST_COMPLETED)
        log.info("the node stops", extra={"in_hand": len(desk.ledger.in_hand), "calls": desk.calls})
        await desk.stop()
        # What is left ends with errors, which handlers still send.
        await relay.close()
        for task in done:
            task.result()
    finally:
        desk.over.set()
        for one in (stopped, *running):
            one.cancel()
        await asyncio.gather(stopped, *running, return_exceptions=True)


def _listener(settings: ServeSettings) -> socket.socket:
    """Return a socket that is bound. Raises SettingsError."""
    host, port = settings.host, settings.port
    try:
        family, kind, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        # The address, not the name: that may mean another machine.
        reached = not hosts.is_loopback(str(where[0]))
        if reached and settings.certificate_file is None and not settings.plain_http:
            raise SettingsError(
                "relay.serve.host",
                f"{host} can be reached from other machines: set certificate_file, or listen on 127.0.0.1",
            )
        listener = socket.socket(family, kind)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            keep_alive(listener)
            listener.bind(where)
        except BaseException:
            listener.close()
            raise
    except OSError as error:
        why = f"cannot listen on {host}, port {port}: {error.strerror or error}; choose another address or port"
        raise SettingsError("relay.serve.host", why) from error
    return listener


def _tls(settings: ServeSettings) -> ssl.SSLContext | None:
    if settings.certificate_file is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        certificates.load(context, settings.certificate_file, settings.key_file)
    except OSError as error:
        raise SettingsError("relay.serve.certificate_file", f"cannot be used: {error}") from None
    if settings.client_ca_file is not None:
        try:
            context.load_verify_locations(settings.client_ca_file)
        except (OSError, ssl.SSLError) as error:
            raise SettingsError("relay.serve.client_ca_file", f"cannot be used: {error}") from None
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def _watching(settings: ServeSettings, desk: Desk, tls: ssl.SSLContext | None) -> list[Coroutine[Any, Any, None]]:
    """Return what looks for changed files."""
    file = settings.access_file
    found = [WatchedFiles([file], lambda: desk.use(Access.read(file)))]
    certificate, key = settings.certificate_file, settings.key_file
    if tls is not None and certificate is not None:
        files: list[Path] = [certificate, key] if key else [certificate]
        found.append(WatchedFiles(files, lambda: certificates.load(tls, certificate, key)))
    return [one.run() for one in found]


def _allow_files(number: int) -> None:
    """Let this process have as many files open, as far as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = number if hard == resource.RLIM_INFINITY else min(number, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _address(listener: socket.socket, tls: bool) -> str:
    host, port = listener.getsockname()[:2]
    return f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
