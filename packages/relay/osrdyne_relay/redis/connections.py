"""Connections to the real Redis: what they are made with, and how they are opened, taken over and closed.

One server, a master that Sentinels name, or a Cluster. The library's own retries are off: `retrying` tries again. User,
password and certificates are read again at each connection.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast
from urllib.parse import unquote

from redis.asyncio import ConnectionPool, RedisCluster
from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import (
    MasterNotFoundError,
    Sentinel,
    SentinelConnectionPool,
    SentinelManagedSSLConnection,
)
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider
from redis.exceptions import RedisError

from osrdyne_protocol.errors import SettingsError
from osrdyne_relay.redis.wire import RedisWire
from osrdyne_relay.settings import RedisSettings, sentinel_at
from osrdyne_runtime import certificate_faults, certificates, log_lines
from osrdyne_runtime.settings import secrets

log = log_lines.logger(__name__)

#: The arguments of AUTH; none where nothing is to be shown.
_Shown = tuple[str, ...]

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

    Empty where there are none, or not yet: the connection then shows nothing.
    """

    def __init__(self, read: Callable[[], _Shown]) -> None:
        """Raises SettingsError."""
        self._read = read
        self._known = read()

    def get_credentials(self) -> _Shown:  # type: ignore[override] # which takes an empty tuple, too
        try:
            self._known = self._read()
        except SettingsError as error:
            log.warning("the log-in of Redis cannot be read again", extra={"reason": str(error)})
        return self._known

    async def get_credentials_async(self) -> _Shown:  # type: ignore[override]
        return self.get_credentials()


def _login(user: str | None, password: str | None) -> _Shown:
    return (user, password or "") if user else (password,) if password else ()


def _shown_to_redis(settings: RedisSettings) -> _Shown:
    address = settings.address()
    user = settings.user or (unquote(address.username) if address.username else None)
    password = unquote(address.password) if address.password else None
    if settings.password_file:
        password = secrets.in_file(settings.password_file, "redis.password_file")
    return _login(user, password)


def _shown_to_sentinels(settings: RedisSettings) -> _Shown:
    file = settings.sentinel_password_file
    return _login(settings.sentinel_user, secrets.in_file(file, "redis.sentinel_password_file") if file else None)


class _TlsConnection(SSLConnection):
    """A connection whose certificate and authorities are read again when it connects again."""

    def _connection_arguments(self) -> Any:
        self.ssl_context.context = None
        return super()._connection_arguments()


class _MasterTlsConnection(SentinelManagedSSLConnection):
    """The same to the master that Sentinels name."""

    def _connection_arguments(self) -> Any:
        self.ssl_context.context = None
        return super()._connection_arguments()


def options_of(settings: RedisSettings) -> dict[str, Any]:
    """Return what a connection is made with. Raises SettingsError."""
    address = settings.address()
    options: dict[str, Any] = {
        "host": address.hostname,
        "port": address.port or 6379,
        "db": int(address.path.strip("/") or 0),
        "credential_provider": _Login(lambda: _shown_to_redis(settings)),
        "protocol": 2,
        "driver_info": None,
        "socket_connect_timeout": settings.connect_timeout,
        "socket_timeout": None,
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
    return options


def _check_certificate(settings: RedisSettings) -> None:
    """Load what redis-py will load, whose errors are those of OpenSSL and come with the first connection."""
    if settings.certificate_file is None:
        return
    try:
        certificates.load(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), settings.certificate_file, settings.key_file)
    except OSError as error:
        raise SettingsError("redis.certificate_file", f"cannot be used: {error}") from None


class _Sentinels(Sentinel):
    """Sentinels whose error has why they could not be asked: the library keeps only a text of that."""

    async def discover_master(self, service_name: str) -> tuple[str, int]:
        try:
            return cast(tuple[str, int], await super().discover_master(service_name))
        except MasterNotFoundError as found:
            error = found
        reason = None
        for sentinel in self.sentinels:
            try:
                await sentinel.ping()
            except RedisError as failed:
                reason = failed
            else:
                raise error
        raise error from reason


def pool_of(settings: RedisSettings, options: dict[str, Any]) -> ConnectionPool:
    """Return a pool for commands and pulses. Its size is bounded by `run`."""
    tls = "ssl_ca_certs" in options
    if not settings.sentinels:
        return ConnectionPool(connection_class=_TlsConnection if tls else Connection, **options)
    hosts = [sentinel_at(address) for address in settings.sentinels]
    own = {name: value for name, value in options.items() if name.startswith(("socket_", "ssl_", "protocol", "driver"))}
    own["credential_provider"] = _Login(lambda: _shown_to_sentinels(settings))
    own["retry"], own["ssl"] = options["retry"], tls
    sentinel = _Sentinels(hosts, sentinel_kwargs=own)  # type: ignore[no-untyped-call]
    for_master = {name: value for name, value in options.items() if name not in ("host", "port")}
    if tls:
        for_master["connection_class"] = _MasterTlsConnection
        for client in sentinel.sentinels:
            client.connection_pool.connection_class = _TlsConnection
    return SentinelConnectionPool(  # type: ignore[no-untyped-call]
        settings.sentinel_master, sentinel, is_master=True, **for_master
    )


def cluster_of(settings: RedisSettings, options: dict[str, Any]) -> RedisCluster:
    """Return a client for the commands of a Cluster."""
    # RedisCluster does not know `ssl_password`; `options_of` has refused a key that needs one.
    given = {name: value for name, value in options.items() if name not in ("db", "retry", "ssl_password")}
    tls = "ssl_ca_certs" in options
    made = RedisCluster(**given, ssl=tls, max_connections=settings.connections, retry=Retry(NoBackoff(), 0))
    if tls:
        made.connection_kwargs["connection_class"] = _TlsConnection
        for node in made.nodes_manager.startup_nodes.values():
            node.connection_class = _TlsConnection
    return made


async def opened(pool: ConnectionPool) -> AbstractConnection:
    """Return a connection that has logged in. Raises the errors of redis-py and OSError."""
    return cast(AbstractConnection, await pool.get_connection())  # type: ignore[no-untyped-call]


def certificate_fault(settings: RedisSettings, error: BaseException) -> str | None:
    """Return what is wrong with the certificate of Redis, and what to do; None where an error is another."""
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
