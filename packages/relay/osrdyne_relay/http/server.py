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
from osrdyne_relay.http.app import create_app
from osrdyne_relay.http.node_service import NodeService
from osrdyne_relay.keepalive import keep_alive
from osrdyne_relay.settings import RelaySettings, ServeSettings
from osrdyne_relay.wire import MOST_HEADER
from osrdyne_runtime import certificates, log_lines
from osrdyne_runtime.door import Door
from osrdyne_runtime.serve.listening import CannotListen, address, listen
from osrdyne_runtime.serve.server import served

log = log_lines.logger(__name__)

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
    service = NodeService(relay, Access.read(own.access_file), own)
    _allow_files(own.connections + _OTHER_FILES)
    door = Door(most=own.connections, tls=tls, most_waiting=own.strangers, patience=own.stranger_timeout)
    service.metrics.connections.set_function(lambda: door.connections)
    app = create_app(service, settings.most_bytes, door)

    async def end_calls(_: web.Application) -> None:
        await relay.close()  # so that handlers still send errors

    app.on_shutdown.append(end_calls)
    listeners = _listeners(own)
    serving = served(
        app,
        listeners,
        door,
        idle=own.idle_timeout,
        handler_cancellation=True,
        max_field_size=MOST_HEADER + 256,
        max_headers=40,
        read_bufsize=_READ,
    )
    async with relay, serving:
        where = address(listeners[0], "http" if tls is None else "https")
        log.info("the node is served", extra={"address": where})
        if listening is not None:
            listening(where)
        await _until(stop, service, relay, [*service.background_work(), *_watching(own, service, tls)])


async def _until(
    stop: asyncio.Event, service: NodeService, relay: Relay, background: list[Coroutine[Any, Any, None]]
) -> None:
    """Have the node work until it is stopped, and end it in good order. Raises what ends its background work."""
    running: list[asyncio.Task[Any]] = [asyncio.create_task(work) for work in background]
    stopped = asyncio.create_task(stop.wait())
    try:
        done, _ = await asyncio.wait([stopped, *running], return_when=asyncio.FIRST_COMPLETED)
        log.info("the node stops", extra={"in_hand": len(service.state.in_hand), "calls": service.calls})
        await service.stop()
        # What is left ends with errors, which handlers still send.
        await relay.close()
        for task in done:
            task.result()
    finally:
        service.grace_over.set()
        for task in (stopped, *running):
            task.cancel()
        await asyncio.gather(stopped, *running, return_exceptions=True)


def _listeners(settings: ServeSettings) -> list[socket.socket]:
    """Return sockets that listen. Raises SettingsError."""
    guarded = settings.certificate_file is not None or settings.plain_http
    try:
        made = listen(settings.host, settings.port, others_need=None if guarded else "set certificate_file")
    except CannotListen as error:
        raise SettingsError("relay.serve.host", str(error)) from error
    for listener in made:
        keep_alive(listener)
    return made


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


def _watching(
    settings: ServeSettings, service: NodeService, tls: ssl.SSLContext | None
) -> list[Coroutine[Any, Any, None]]:
    """Return the work that watches files for changes."""
    file = settings.access_file
    found = [WatchedFiles([file], lambda: service.use_access(Access.read(file)))]
    certificate, key = settings.certificate_file, settings.key_file
    if tls is not None and certificate is not None:
        files: list[Path] = [certificate, key] if key else [certificate]
        found.append(WatchedFiles(files, lambda: certificates.load(tls, certificate, key)))
    return [watched.run() for watched in found]


def _allow_files(number: int) -> None:
    """Let this process have as many files open, as far as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = number if hard == resource.RLIM_INFINITY else min(number, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
