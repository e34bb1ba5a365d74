"""Connections to the real Redis: what they are made with, and how they are opened, taken over and closed.

redis-py's own retries are off: `redis.retrying` tries again. User, password and certificates are read again at each
connection.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast
from urllib.parse import unquote

from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider
from redis.exceptions import RedisError

from osrdyne_protocol.errors import SettingsError
from osrdyne_relay.redis.wire import RedisWire
from osrdyne_relay.settings import RedisSettings
from osrdyne_runtime import certificate_faults, certificates, log_lines
from osrdyne_runtime.outages import OutageLog
from osrdyne_runtime.settings import secrets

log = log_lines.logger(__name__)

#: The arguments of AUTH; empty where the connection does not log in.
_AuthArguments = tuple[str, ...]

#: Seconds after which the kernel gives up what it could not deliver. Shorter than a call's hash stays after its end, so
#: that a late command finds it.
_UNDELIVERED_SECONDS = 30
_KEEPALIVE = {
    socket.TCP_KEEPIDLE: 10,
    socket.TCP_KEEPINTVL: 5,
    socket.TCP_KEEPCNT: 3,
    socket.TCP_USER_TIMEOUT: _UNDELIVERED_SECONDS * 1000,
}


class _Login(CredentialProvider):
    """User and password, as they are when a connection is made; the last ones that were read while they cannot be.

    Empty where there are none, or not yet: the connection then does not log in.
    """

    def __init__(self, settings: RedisSettings) -> None:
        """Raises SettingsError."""
        self._settings = settings
        self._known = self._read()
        self._outage = OutageLog(log, "the log-in of Redis", meanwhile="the last one that was read counts")

    def get_credentials(self) -> _AuthArguments:  # type: ignore[override] # which takes an empty tuple, too
        try:
            self._known = self._read()
        except SettingsError as error:
            self._outage.failed(str(error), time.monotonic())
        else:
            self._outage.over(time.monotonic())
        return self._known

    async def get_credentials_async(self) -> _AuthArguments:  # type: ignore[override]
        return self.get_credentials()

    def _read(self) -> _AuthArguments:
        address = self._settings.address()
        user = self._settings.user or unquote(address.username or "")
        password = unquote(address.password or "")
        if self._settings.password_file:
            password = secrets.in_file(self._settings.password_file, "redis.password_file")
        return (user, password) if user else (password,) if password else ()


class _TlsConnection(SSLConnection):
    """A connection whose certificate and authorities are read again when it connects again."""

    def _connection_arguments(self) -> Any:
        self.ssl_context.context = None
        return super()._connection_arguments()


def pool_of(settings: RedisSettings) -> ConnectionPool:
    """Return a pool for commands and pulses. It has no bound: `RedisClient` bounds it. Raises SettingsError."""
    address = settings.address()
    options: dict[str, Any] = {
        "host": address.hostname,
        "port": address.port or 6379,
        "db": int(address.path.strip("/") or 0),
        "credential_provider": _Login(settings),
        "protocol": 2,  # RESP2
        "driver_info": None,  # no CLIENT SETINFO at each connection
        "socket_connect_timeout": settings.connect_timeout,
        "socket_timeout": None,  # `redis.client` times the answers
        "socket_keepalive": True,
        "socket_keepalive_options": _KEEPALIVE,
        "retry": Retry(NoBackoff(), 0),
    }
    if address.scheme == "rediss":
        _check_certificate(settings)
        options["ssl_ca_certs"] = settings.ca_file and str(settings.ca_file)
        options["ssl_certfile"] = settings.certificate_file and str(settings.certificate_file)
        options["ssl_keyfile"] = settings.key_file and str(settings.key_file)
        options["ssl_password"] = ""  # as osrdyne_runtime.certificates does: no prompt for that of an encrypted key
    return ConnectionPool(connection_class=_TlsConnection if address.scheme == "rediss" else Connection, **options)


def _check_certificate(settings: RedisSettings) -> None:
    """Load what redis-py will load, whose errors are those of OpenSSL and come with the first connection."""
    if settings.certificate_file is None:
        return
    try:
        certificates.load(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), settings.certificate_file, settings.key_file)
    except OSError as error:
        raise SettingsError("redis.certificate_file", f"cannot be used: {error}") from None


async def opened(pool: ConnectionPool) -> AbstractConnection:
    """Return a connection that has logged in. Raises the errors of redis-py and OSError."""
    return cast(AbstractConnection, await pool.get_connection())  # type: ignore[no-untyped-call]


def certificate_fault(settings: RedisSettings, error: BaseException) -> str | None:
    """Return what is wrong with the certificate of Redis, and what to do; None for any other error."""
    return certificate_faults.fault(error, authority=settings.ca_file, setting="relay.redis.ca_file")


def taken_over(connection: AbstractConnection, said: Callable[[Any], None], ended: Callable[[str], None]) -> RedisWire:
    """Take over a connection that has just been opened. redis-py shows its transport nowhere else."""
    writer = connection._writer  # noqa: SLF001
    if writer is None:
        raise ConnectionError("the connection has ended")
    return RedisWire(writer.transport, said, ended)


async def closed(pool: ConnectionPool, connection: AbstractConnection | None, wire: RedisWire | None) -> None:
    """Close a connection, which `pool` then no longer counts. Raises nothing."""
    if wire is not None:
        wire.abort()
    if connection is not None:
        with suppress(RedisError, OSError):
            await connection.disconnect(nowait=True)
            await pool.release(connection)
