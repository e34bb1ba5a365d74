"""The real Redis. The only module that imports redis: one server, a master that Sentinels name, or a Cluster.

A transaction is a MULTI. What is asked for at the same time goes out in one write, over a few connections that never
wait for each other's answers. On a Cluster a transaction is an EVAL of a script that executes its commands, because the
library finds the server for one command only. Its own retries are off: `retrying` tries again.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast
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

from osrdyne_protocol import certificates
from osrdyne_protocol.errors import SettingsError
from osrdyne_relay.errors import RedisRefused
from osrdyne_relay.port import Away, Command, Hear, RedisPort, Subscriber
from osrdyne_relay.redis_wire import RedisWire, ReplyError, packed
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
#: On a Cluster: executes its arguments as commands: the number of words of each, and the words.
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
        if self._cluster is None:
            return await self._line().ask(commands)
        one = commands[0] if len(commands) == 1 else _as_script(commands)
        try:
            answer = await self._cluster.execute_command(*one)
        except (RedisError, RedisClusterException, OSError) as error:
            raise _meaning(error, sent=True) from None
        return cast("list[Any]", answer) if len(commands) > 1 else [answer]

    def _line(self) -> _Line:
        """Return the connection with the fewest questions, or a new one while there may be more."""
        for line in self._lines:
            if line.load <= _BUSY and not line.ended:
                return line
        self._lines = [line for line in self._lines if not line.ended]
        if len(self._lines) >= self._settings.connections:
            return min(self._lines, key=lambda line: line.load)
        self._lines.append(_Line(self._pool, self._settings.answer_timeout))
        return self._lines[-1]

    def subscriber(self, hear: Hear) -> Subscriber:
        return _Subscriber(self._pool, self._settings.answer_timeout, hear)

    async def close(self) -> None:
        for line in self._lines:
            line.end(Away("this node closes", sent=True))
        with suppress(RedisError, OSError):
            await asyncio.gather(*(line.closed() for line in self._lines))
            await self._pool.aclose()
            if isinstance(self._pool, SentinelConnectionPool):
                await self._pool.sentinel_manager.aclose()
            if self._cluster is not None:
                await self._cluster.aclose()


@dataclass(slots=True)
class _Question:
    """Commands that were asked for, and what becomes of them."""

    answered: asyncio.Future[list[Any]]
    #: Answers that are still to come. Of a transaction, the last has those of all its commands.
    left: int
    whole: bool
    error: ReplyError | None = None


class _Line:
    """A connection over which questions go out while others wait for their answers, which come in the same order."""

    def __init__(self, pool: ConnectionPool, answer_timeout: float) -> None:
        self._pool = pool
        self._look_every = answer_timeout / 2
        self._loop = asyncio.get_running_loop()
        self._wire: RedisWire | None = None
        self._unsent: list[tuple[bytes, _Question]] = []
        self._asked: deque[_Question] = deque()
        self._sends = False
        self.ended = False
        self._at_end = asyncio.Event()
        #: How many answers came, before the last look and now; looks in a row without an answer.
        self._heard_before = self._heard = self._quiet = 0
        self._timer: asyncio.TimerHandle | None = None
        self._task = self._loop.create_task(self._run(), name="connection to Redis")

    @property
    def load(self) -> int:
        """Questions without an answer."""
        return len(self._unsent) + len(self._asked)

    def ask(self, commands: tuple[Command, ...]) -> asyncio.Future[list[Any]]:
        """Return a future of the answers. It raises RedisRefused or Away."""
        number = len(commands)
        question = _Question(self._loop.create_future(), 1 if number == 1 else number + 2, number > 1)
        idle = not self.load
        self._unsent.append((packed(commands), question))
        if idle:
            self._send()
        elif not self._sends:
            # On a busy connection, what is asked for until then goes out in the same write.
            self._sends = True
            self._loop.call_soon(self._send)
        if self._timer is None:
            self._heard_before, self._quiet = self._heard, 0
            self._timer = self._loop.call_later(self._look_every, self._look)
        return question.answered

    def end(self, why: Away | RedisRefused) -> None:
        """Give all questions up, and close the connection."""
        if self.ended:
            return
        self.ended = True
        self._at_end.set()
        if self._wire is None and self._task is not asyncio.current_task():
            # It may take long to connect.
            self._task.cancel()
        if self._timer is not None:
            self._timer.cancel()
        for question, sent in (*((one, True) for one in self._asked), *((one, False) for _, one in self._unsent)):
            if not question.answered.done():
                given = Away(str(why), sent=sent and why.sent) if isinstance(why, Away) else why
                question.answered.set_exception(given)
                question.answered.exception()  # its caller may be gone
        self._asked.clear()
        self._unsent.clear()

    async def closed(self) -> None:
        """Wait until the connection is closed."""
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        connection = None
        try:
            connection = await _connected(self._pool)
            self._wire = _wire(connection, self._answer, lambda why: self.end(Away(why, sent=True)))
            self._wire.at_room = self._send
            self._send()
            await self._at_end.wait()
        except (RedisError, RedisClusterException, OSError) as error:
            # A wrong password cannot be cured by another attempt.
            self.end(_meaning(error, sent=True))
        finally:
            self.end(Away("the connection has ended", sent=True))
            await _closed(self._pool, connection, self._wire)

    def _send(self) -> None:
        self._sends = False
        if self._wire is None or self._wire.full or self.ended or not self._unsent:
            return
        some, self._unsent = self._unsent, []
        self._asked.extend(question for _, question in some)
        self._wire.write(b"".join([data for data, _ in some]))

    def _answer(self, answer: Any) -> None:
        if self.ended:
            return
        self._heard += 1
        question = self._asked[0]
        question.left -= 1
        if isinstance(answer, ReplyError) and question.error is None:
            question.error = answer
        if question.left:
            return
        self._asked.popleft()
        if question.answered.done():
            return
        answers = answer if question.whole else [answer]
        error = question.error or next((one for one in answers if isinstance(one, ReplyError)), None)
        if error is None:
            question.answered.set_result(answers)
            return
        question.answered.set_exception(_said_by_redis(str(error), sent=True))
        if str(error).startswith("READONLY"):
            # Another one is the master now: a new connection finds it.
            self.end(Away(_begin(error), sent=True))

    def _look(self) -> None:
        """End a connection that is dead: whose oldest question has waited for two looks, without any answer.

        Where this process was too busy to read, it reads answers before the second look.
        """
        self._timer = None
        if not self.load:
            return
        self._quiet = self._quiet + 1 if self._heard == self._heard_before else 0
        self._heard_before = self._heard
        if self._quiet == 2:
            self.end(Away("no answer in time", sent=True))
        else:
            self._timer = self._loop.call_later(self._look_every, self._look)


class _Subscriber(Subscriber):
    """A connection that only receives. On a Cluster every node passes on what is published on any."""

    def __init__(self, pool: ConnectionPool, timeout: float, hear: Hear) -> None:
        self._pool = pool
        self._timeout = timeout
        self._hear = hear
        self._connection: AbstractConnection | None = None
        self._wire: RedisWire | None = None
        #: Has what ended the connection.
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._heard = 0

    async def subscribe(self, *channels: str) -> None:
        await self._send("SUBSCRIBE", *channels)

    async def unsubscribe(self, *channels: str) -> None:
        await self._send("UNSUBSCRIBE", *channels)

    async def receive(self) -> None:
        tried = False
        while not self._ended.done():
            heard = self._heard
            await asyncio.wait([self._ended], timeout=_QUIET)
            if self._heard != heard:
                tried = False
            elif tried:
                raise Away("the connection for pulses does not answer", sent=False)
            else:
                tried = True
                await self._send("PING")
        self._ended.result()

    async def _send(self, *words: str) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                if self._wire is None:
                    self._connection = await _connected(self._pool)
                    self._wire = _wire(self._connection, self._said, lambda why: self._end(Away(why, sent=False)))
        except (RedisError, OSError, TimeoutError) as error:
            raise _meaning(error, sent=False) from None
        self._wire.write(packed((words,)))

    def _said(self, said: Any) -> None:
        self._heard += 1
        if isinstance(said, ReplyError):
            self._end(_said_by_redis(str(said), sent=False))
        elif isinstance(said, list) and len(said) == 3 and said[0] in (b"message", b"subscribe"):
            self._hear(said[1].decode(errors="replace"), said[2] if said[0] == b"message" else None)

    def _end(self, why: Away | RedisRefused) -> None:
        if not self._ended.done():
            self._ended.set_exception(why)
            self._ended.exception()  # it may be that no task waits for it

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        await _closed(self._pool, connection, self._wire)


async def _connected(pool: ConnectionPool) -> AbstractConnection:
    return cast(AbstractConnection, await pool.get_connection())  # type: ignore[no-untyped-call]


def _wire(connection: AbstractConnection, said: Callable[[Any], None], ended: Callable[[str], None]) -> RedisWire:
    """Take over a connection that has just been opened. redis-py shows its transport nowhere else."""
    writer = connection._writer  # noqa: SLF001
    if writer is None:
        raise ConnectionError("the connection has ended")
    return RedisWire(writer.transport, said, ended)


async def _closed(pool: ConnectionPool, connection: AbstractConnection | None, wire: RedisWire | None) -> None:
    """Close a connection, which `pool` then no longer counts. Raises nothing."""
    if wire is not None:
        wire.abort()
    if connection is not None:
        with suppress(RedisError, OSError):
            await connection.disconnect(nowait=True)
            await pool.release(connection)


def _as_script(commands: tuple[Command, ...]) -> Command:
    """Return several commands as one."""
    words = [word for command in commands for word in (len(command), *command)]
    key = next(command[1] for command in commands if command[0] != "PUBLISH")
    return ("EVAL", _SCRIPT, 1, key, *words)


def _meaning(error: BaseException, *, sent: bool) -> Away | RedisRefused:
    """Return what an error of redis-py means."""
    if isinstance(error, (AuthenticationError, AuthorizationError, NoPermissionError)):
        return _refused(error)
    if type(error) is ResponseError:
        return _said_by_redis(str(error), sent=sent)
    return Away(f"{type(error).__name__}: {_begin(error)}".removesuffix(": "), sent=sent)


def _said_by_redis(text: str, *, sent: bool) -> Away | RedisRefused:
    """Return what an error that Redis answered means."""
    if text.removeprefix("ERR ").startswith(_PASSING):
        return Away(_begin(text), sent=sent)
    return _refused(text)


def _refused(error: BaseException | str) -> RedisRefused:
    return RedisRefused(f"{RedisRefused.__doc__} It says: {_begin(error)}")


def _begin(error: BaseException | str) -> str:
    # redis-py appends commands, which hold bodies, to some.
    return (str(error).splitlines() or [""])[0][:200]


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
        _check_certificate(settings)
        options["ssl_ca_certs"] = settings.ca_file and str(settings.ca_file)
        options["ssl_certfile"] = settings.certificate_file and str(settings.certificate_file)
        options["ssl_keyfile"] = settings.key_file and str(settings.key_file)
        options["ssl_password"] = ""  # as osrdyne_protocol.certificates does: no prompt for that of an encrypted key
    return options


def _check_certificate(settings: RedisSettings) -> None:
    """Load what redis-py will load, whose errors are those of OpenSSL and come with the first connection."""
    if settings.certificate_file is None:
        return
    try:
        certificates.load(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), settings.certificate_file, settings.key_file)
    except OSError as error:
        raise SettingsError("redis.certificate_file", f"cannot be used: {error}") from None


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
