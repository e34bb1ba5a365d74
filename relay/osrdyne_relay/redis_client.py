"""The real Redis. The only module that imports redis: one server, a master that Sentinels name, or a Cluster.

A transaction is one EVAL of a script that executes its commands: one answer to read, and the same on a Cluster. What is
asked for at the same time goes out in one write, over a few connections that never wait for each other's answers. The
library's own retries are off: `retrying` tries again.
"""

from __future__ import annotations

import asyncio
import math
import socket
from collections import deque
from contextlib import suppress
from typing import Any, NoReturn, cast
from urllib.parse import unquote

from redis.asyncio import ConnectionPool, RedisCluster
from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    NoPermissionError,
    RedisClusterException,
    RedisError,
    ResponseError,
)

from osrdyne_relay.errors import RedisRefused
from osrdyne_relay.port import Away, Command, RedisPort, Subscriber
from osrdyne_relay.settings import RedisSettings, secret

#: Seconds without a pulse after which the connection is tried, and then for the answer.
_QUIET = 15.0
#: Seconds after which the kernel gives up what it could not deliver. Shorter than a call's hash stays after its end, so
#: that a late command finds it.
_UNDELIVERED = 30
_KEEPALIVE = {
    socket.TCP_KEEPIDLE: 10,
    socket.TCP_KEEPINTVL: 5,
    socket.TCP_KEEPCNT: 3,
    socket.TCP_USER_TIMEOUT: _UNDELIVERED * 1000,
}
#: Errors of Redis that a later attempt does not meet: it starts, has no memory left, or another one is the master now.
_PASSING = (
    *("LOADING", "BUSY", "OOM", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MISCONF", "NOREPLICAS"),
    *("MOVED", "ASK", "UNBLOCKED", "max number of clients reached"),
)
#: Questions without an answer above which a further connection is opened.
_BUSY = 8
#: Executes its arguments as commands: the number of words of each, and the words.
_SCRIPT = """
local answers, at = {}, 1
while at <= #ARGV do
  local words = tonumber(ARGV[at])
  answers[#answers + 1] = redis.call(unpack(ARGV, at + 1, at + words))
  at = at + words + 1
end
return answers
"""


class RedisClient(RedisPort):
    """Commands over a bounded number of connections, and one more for pulses."""

    def __init__(self, settings: RedisSettings) -> None:
        """Read the files that the settings name; connect at the first use. Raises SettingsError."""
        self._settings = settings
        options = _options(settings)
        self._pool = _pool(settings, options)
        self._cluster = _cluster(settings, options) if settings.cluster else None
        self._lines: list[_Line] = []

    async def run(self, *commands: Command) -> list[Any]:
        one = commands[0] if len(commands) == 1 else _as_script(commands)
        try:
            answer = await (self._cluster.execute_command(*one) if self._cluster else self._ask(one))
        except (RedisError, RedisClusterException, OSError) as error:
            _refused_or_away(error, sent=True)
        return cast("list[Any]", answer) if len(commands) > 1 else [answer]

    async def _ask(self, command: Command) -> Any:
        line = self._line()
        asked = line.ask(command)
        quiet = 0
        # Twice: where this process was too busy to read, the answer is read before the second time is over.
        while quiet < 2:
            heard = line.heard
            await asyncio.wait([asked], timeout=self._settings.answer_timeout / 2)
            if asked.done():
                return asked.result()
            quiet = quiet + 1 if line.heard == heard else 0
        sent = line.has_sent(asked)
        line.end(Away("no answer in time", sent=True))
        raise Away("no answer in time", sent=sent)

    def _line(self) -> _Line:
        """Return the connection with the fewest questions, or a new one while there may be more."""
        self._lines = [line for line in self._lines if not line.ended]
        best = min(self._lines, key=lambda line: line.load, default=None)
        if best is None or (best.load > _BUSY and len(self._lines) < self._settings.connections):
            best = _Line(self._pool)
            self._lines.append(best)
        return best

    def subscriber(self) -> Subscriber:
        return _Subscriber(self._pool, self._settings.answer_timeout)

    async def close(self) -> None:
        for line in self._lines:
            line.end(Away("this node closes", sent=True))
        with suppress(RedisError, OSError):
            await asyncio.gather(*(line.closed() for line in self._lines))
            await self._pool.aclose()
            if self._cluster is not None:
                await self._cluster.aclose()


class _Line:
    """A connection over which questions go out while others wait for their answers, which come in the same order."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._unsent: deque[tuple[Command, asyncio.Future[Any]]] = deque()
        self._asked: deque[asyncio.Future[Any]] = deque()
        self._news = asyncio.Event()
        self.ended = False
        #: How many answers came.
        self.heard = 0
        self._task = asyncio.get_running_loop().create_task(self._run(), name="connection to Redis")

    @property
    def load(self) -> int:
        """Questions without an answer."""
        return len(self._unsent) + len(self._asked)

    def ask(self, command: Command) -> asyncio.Future[Any]:
        """Return a future of the answer; it raises what Redis or the connection says, or Away."""
        asked: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._unsent.append((command, asked))
        self._news.set()
        return asked

    def has_sent(self, asked: asyncio.Future[Any]) -> bool:
        """Whether a question may have reached Redis."""
        return all(one is not asked for _, one in self._unsent)

    def end(self, why: Away) -> None:
        """Give all questions up, and close the connection."""
        if self.ended:
            return
        self.ended = True
        self._task.cancel()
        unsent = [asked for _, asked in self._unsent]
        for asked, sent in (*((one, True) for one in self._asked), *((one, False) for one in unsent)):
            if not asked.done():
                asked.set_exception(Away(str(why), sent=sent and why.sent))
                asked.exception()  # its caller may be gone

    async def closed(self) -> None:
        """Wait until the connection is closed."""
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        connection = None
        try:
            connection = await _connected(self._pool)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._send(connection))
                both.create_task(self._receive(connection))
        except* (RedisError, RedisClusterException, OSError) as errors:
            self._broke(errors.exceptions[0])
        finally:
            self.end(Away("the connection has ended", sent=True))
            if connection is not None:
                await connection.disconnect(nowait=True)
                await self._pool.release(connection)

    def _broke(self, error: BaseException) -> None:
        """Pass on what ended the connection: a wrong password cannot be cured by another attempt."""
        try:
            _refused_or_away(error, sent=True)
        except RedisRefused as refused:
            for _, asked in self._unsent:
                if not asked.done():
                    asked.set_exception(refused)
        except Away as away:
            self.end(away)

    async def _send(self, connection: AbstractConnection) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            some = [self._unsent.popleft() for _ in range(len(self._unsent))]
            self._asked.extend(asked for _, asked in some)
            await connection.send_packed_command(connection.pack_commands([command for command, _ in some]))

    async def _receive(self, connection: AbstractConnection) -> None:
        while True:
            try:
                answer, error = await connection.read_response(timeout=math.inf, disconnect_on_error=False), None
            except ResponseError as refused:
                answer, error = None, refused
            self.heard += 1
            asked = self._asked.popleft()
            if asked.done():
                continue
            if error is None:
                asked.set_result(answer)
            else:
                asked.set_exception(error)


class _Subscriber(Subscriber):
    """A connection that only receives. On a Cluster every node passes on what is published on any."""

    def __init__(self, pool: ConnectionPool, timeout: float) -> None:
        self._pool = pool
        self._timeout = timeout
        self._connection: AbstractConnection | None = None

    async def subscribe(self, *channels: str) -> None:
        await self._send("SUBSCRIBE", *channels)

    async def unsubscribe(self, *channels: str) -> None:
        await self._send("UNSUBSCRIBE", *channels)

    async def next(self) -> tuple[str, bytes | None]:
        tried = False
        while True:
            raw = await self._read()
            if raw is None and tried:
                raise Away("the connection for pulses does not answer", sent=False)
            if raw is None:
                await self._send("PING")
            tried = raw is None
            kind = raw[0] if isinstance(raw, list) and len(raw) == 3 else None
            if kind == b"message":
                return raw[1].decode(errors="replace"), raw[2]
            if kind == b"subscribe":
                return raw[1].decode(errors="replace"), None

    async def _read(self) -> Any:
        """Return what came, or None after a while in which nothing came."""
        if self._connection is None:
            raise Away("the connection for pulses is not open", sent=False)
        try:
            return await self._connection.read_response(timeout=_QUIET, disconnect_on_error=False)
        except (RedisError, OSError) as error:
            _refused_or_away(error, sent=False)

    async def _send(self, *words: str) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                if self._connection is None:
                    self._connection = await _connected(self._pool)
                await self._connection.send_command(*words)
        except (RedisError, OSError, TimeoutError) as error:
            _refused_or_away(error, sent=False)

    async def close(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            with suppress(RedisError, OSError):
                await connection.disconnect(nowait=True)
                await self._pool.release(connection)


async def _connected(pool: ConnectionPool) -> AbstractConnection:
    return cast(AbstractConnection, await pool.get_connection())  # type: ignore[no-untyped-call]


def _as_script(commands: tuple[Command, ...]) -> Command:
    """Return several commands as one."""
    words = [word for command in commands for word in (len(command), *command)]
    key = next(command[1] for command in commands if command[0] != "PUBLISH")
    return ("EVAL", _SCRIPT, 1, key, *words)


def _refused_or_away(error: BaseException, *, sent: bool) -> NoReturn:
    # Only the begin of its text: redis-py appends commands, which hold bodies, to some.
    said = (str(error).splitlines() or [""])[0][:200]
    reason = f"{type(error).__name__}: {said}" if said else f"{type(error).__name__}"
    lasting = isinstance(error, (AuthenticationError, AuthorizationError, NoPermissionError))
    if lasting or (isinstance(error, ResponseError) and not said.startswith(_PASSING) and type(error) is ResponseError):
        raise RedisRefused(f"{RedisRefused.__doc__} It says: {reason}") from None
    raise Away(reason, sent=sent) from None


def _options(settings: RedisSettings) -> dict[str, Any]:
    """Return what a connection is made with."""
    address = settings.address()
    user = settings.user or (unquote(address.username) if address.username else None)
    password = unquote(address.password) if address.password else None
    if settings.password_file:
        password = secret(settings.password_file, "redis.password_file")
    options: dict[str, Any] = {
        "host": address.hostname,
        "port": address.port or 6379,
        "db": int(address.path.strip("/") or 0),
        "username": user,
        "password": password,
        "protocol": 2,
        "driver_info": None,
        "socket_connect_timeout": settings.connect_timeout,
        "socket_timeout": None,
        "socket_keepalive": True,
        "socket_keepalive_options": _KEEPALIVE,
        "retry": Retry(NoBackoff(), 0),
    }
    if address.scheme == "rediss":
        options["ssl_ca_certs"] = settings.ca_file and str(settings.ca_file)
        options["ssl_certfile"] = settings.certificate_file and str(settings.certificate_file)
        options["ssl_keyfile"] = settings.key_file and str(settings.key_file)
    return options


def _pool(settings: RedisSettings, options: dict[str, Any]) -> ConnectionPool:
    """Return a pool for commands and pulses. Its size is bounded by `run`."""
    tls = "ssl_ca_certs" in options
    if not settings.sentinels:
        return ConnectionPool(connection_class=SSLConnection if tls else Connection, **options)
    hosts = [(host, int(port)) for host, _, port in (one.rpartition(":") for one in settings.sentinels)]
    own = {name: value for name, value in options.items() if name.startswith(("socket_", "ssl_", "protocol", "driver"))}
    own["username"], own["retry"], own["ssl"] = settings.sentinel_user, options["retry"], tls
    if settings.sentinel_password_file:
        own["password"] = secret(settings.sentinel_password_file, "redis.sentinel_password_file")
    sentinel = Sentinel(hosts, sentinel_kwargs=own)  # type: ignore[no-untyped-call]
    for_master = {name: value for name, value in options.items() if name not in ("host", "port")}
    return SentinelConnectionPool(  # type: ignore[no-untyped-call]
        settings.sentinel_master, sentinel, is_master=True, ssl=tls, **for_master
    )


def _cluster(settings: RedisSettings, options: dict[str, Any]) -> RedisCluster:
    given = {name: value for name, value in options.items() if name not in ("db", "retry")}
    return RedisCluster(
        **given,
        ssl="ssl_ca_certs" in options,
        max_connections=settings.connections,
        retry=Retry(NoBackoff(), 0),
    )
