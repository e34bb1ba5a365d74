"""The real Redis: commands and pulses, over the connections of `connections`.

A transaction is a MULTI. What is asked for at the same time goes out in one write, over a few connections that never
wait for each other's answers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    NoPermissionError,
    RedisError,
    ResponseError,
)

from osrdyne_relay.errors import RedisRefused
from osrdyne_relay.redis.connections import (
    certificate_fault,
    closed,
    opened,
    pool_of,
    taken_over,
)
from osrdyne_relay.redis.port import Away, Command, Hear, RedisPort, Subscriber
from osrdyne_relay.redis.wire import RedisWire, ReplyError, packed
from osrdyne_relay.settings import RedisSettings
from osrdyne_runtime.forks import OwnerProcess, keep

#: Seconds without a pulse after which the connection is tried, and then for the answer.
_PING_AFTER_SECONDS = 15.0
#: Errors of Redis that a later attempt does not meet: it starts, has no memory left, or another one is the master now.
_PASSING = (
    *("LOADING", "BUSY", "OOM", "READONLY", "MASTERDOWN", "MISCONF", "NOREPLICAS"),
    *("UNBLOCKED", "max number of clients reached"),
)
#: Questions without an answer above which a further connection is opened.
_BUSY_COMMANDS = 8


class RedisClient(RedisPort):
    """Commands over a bounded number of connections, and one more for pulses."""

    def __init__(self, settings: RedisSettings) -> None:
        """Read the files that the settings name; connect at the first use. Raises SettingsError."""
        self._settings = settings
        self._pool = pool_of(settings)
        self._connections: list[_Connection] = []
        self._home: OwnerProcess | None = None

    def _check_here(self) -> None:
        if self._home is None:
            self._home = OwnerProcess()
        self._home.check("this connection to Redis")

    async def run(self, *commands: Command) -> list[Any]:
        self._check_here()
        return await self._connection().ask(commands)

    def _connection(self) -> _Connection:
        """Return the connection with the fewest questions, or a new one while there may be more."""
        for connection in self._connections:
            if connection.in_flight <= _BUSY_COMMANDS and not connection.ended:
                return connection
        self._connections = [connection for connection in self._connections if not connection.ended]
        if len(self._connections) >= self._settings.connections:
            return min(self._connections, key=lambda connection: connection.in_flight)
        self._connections.append(_Connection(self._pool, self._settings))
        return self._connections[-1]

    def subscriber(self, hear: Hear) -> Subscriber:
        self._check_here()
        return _Subscriber(self._pool, self._settings, hear)

    async def close(self) -> None:
        if self._home is not None and not self._home.is_here:
            keep(self._connections)
            return
        for connection in self._connections:
            connection.end(Away("this node closes", sent=True))
        with suppress(RedisError, OSError):
            await asyncio.gather(*(connection.closed() for connection in self._connections))
            await self._pool.aclose()


@dataclass(slots=True)
class _PendingCommand:
    """Commands that were asked for, and what becomes of them."""

    answered: asyncio.Future[list[Any]]
    #: Answers that are still to come. Of a transaction, the last has those of all its commands.
    left: int
    whole: bool
    error: ReplyError | None = None


class _Connection:
    """A connection over which commands go out while others wait for their answers, which come in the same order."""

    def __init__(self, pool: ConnectionPool, settings: RedisSettings) -> None:
        self._pool = pool
        self._settings = settings
        self._check_every = settings.answer_timeout / 2
        self._loop = asyncio.get_running_loop()
        self._wire: RedisWire | None = None
        self._unsent: list[tuple[bytes, _PendingCommand]] = []
        self._asked: deque[_PendingCommand] = deque()
        self._sends = False
        self.ended = False
        self._at_end = asyncio.Event()
        #: How many answers came, before the last check and now; checks in a row without an answer.
        self._heard_before = self._heard = self._quiet = 0
        self._timer: asyncio.TimerHandle | None = None
        self._task = self._loop.create_task(self._run(), name="connection to Redis")

    @property
    def in_flight(self) -> int:
        """Commands without an answer."""
        return len(self._unsent) + len(self._asked)

    def ask(self, commands: tuple[Command, ...]) -> asyncio.Future[list[Any]]:
        """Return a future of the answers. It raises RedisRefused or Away."""
        number = len(commands)
        pending = _PendingCommand(self._loop.create_future(), 1 if number == 1 else number + 2, number > 1)
        idle = not self.in_flight
        self._unsent.append((packed(commands), pending))
        if idle:
            self._send()
        elif not self._sends:
            # On a busy connection, what is asked for until then goes out in the same write.
            self._sends = True
            self._loop.call_soon(self._send)
        if self._timer is None:
            self._heard_before, self._quiet = self._heard, 0
            self._timer = self._loop.call_later(self._check_every, self._check_liveness)
        return pending.answered

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
        for pending, sent in (
            *((sent, True) for sent in self._asked),
            *((unsent, False) for _, unsent in self._unsent),
        ):
            if not pending.answered.done():
                given = Away(str(why), sent=sent and why.sent) if isinstance(why, Away) else why
                pending.answered.set_exception(given)
                pending.answered.exception()  # its caller may be gone
        self._asked.clear()
        self._unsent.clear()

    async def closed(self) -> None:
        """Wait until the connection is closed."""
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        connection = None
        try:
            connection = await opened(self._pool)
            self._wire = taken_over(connection, self._answer, lambda why: self.end(Away(why, sent=True)))
            self._wire.at_room = self._send
            self._send()
            await self._at_end.wait()
        except (RedisError, OSError) as error:
            # A wrong password, or certificate, cannot be cured by another attempt.
            self.end(_meaning(error, self._settings, self._pool, sent=True))
        finally:
            self.end(Away("the connection has ended", sent=True))
            await closed(self._pool, connection, self._wire)

    def _send(self) -> None:
        self._sends = False
        if self._wire is None or self._wire.full or self.ended or not self._unsent:
            return
        some, self._unsent = self._unsent, []
        self._asked.extend(pending for _, pending in some)
        self._wire.write(b"".join([data for data, _ in some]))

    def _answer(self, answer: Any) -> None:
        if self.ended:
            return
        self._heard += 1
        pending = self._asked[0]
        pending.left -= 1
        if isinstance(answer, ReplyError) and pending.error is None:
            pending.error = answer
        if pending.left:
            return
        self._asked.popleft()
        if pending.answered.done():
            return
        answers = answer if pending.whole else [answer]
        error = pending.error or next((found for found in answers if isinstance(found, ReplyError)), None)
        if error is None:
            pending.answered.set_result(answers)
            return
        pending.answered.set_exception(_said_by_redis(str(error), self._pool, sent=True))
        if str(error).startswith("READONLY"):
            # Another one is the master now: a new connection finds it.
            self.end(Away(_begin(error), sent=True))

    def _check_liveness(self) -> None:
        """End a connection whose oldest command has waited for two checks, without any answer.

        Where this process was too busy to read, it reads answers before the second check.
        """
        self._timer = None
        if not self.in_flight:
            return
        self._quiet = self._quiet + 1 if self._heard == self._heard_before else 0
        self._heard_before = self._heard
        if self._quiet == 2:
            self.end(Away("no answer in time", sent=True))
        else:
            self._timer = self._loop.call_later(self._check_every, self._check_liveness)


class _Subscriber(Subscriber):
    """A connection that only receives."""

    def __init__(self, pool: ConnectionPool, settings: RedisSettings, hear: Hear) -> None:
        self._pool = pool
        self._settings = settings
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
            await asyncio.wait([self._ended], timeout=_PING_AFTER_SECONDS)
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
            async with asyncio.timeout(self._settings.answer_timeout):
                if self._wire is None:
                    self._connection = await opened(self._pool)
                    self._wire = taken_over(self._connection, self._said, lambda why: self._end(Away(why, sent=False)))
        except (RedisError, OSError, TimeoutError) as error:
            raise _meaning(error, self._settings, self._pool, sent=False) from None
        self._wire.write(packed((words,)))

    def _said(self, said: Any) -> None:
        self._heard += 1
        if isinstance(said, ReplyError):
            self._end(_said_by_redis(str(said), self._pool, sent=False))
        elif isinstance(said, list) and len(said) == 3 and said[0] in (b"message", b"subscribe"):
            self._hear(said[1].decode(errors="replace"), said[2] if said[0] == b"message" else None)

    def _end(self, why: Away | RedisRefused) -> None:
        if not self._ended.done():
            self._ended.set_exception(why)
            self._ended.exception()  # it may be that no task waits for it

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        await closed(self._pool, connection, self._wire)


def _meaning(error: BaseException, settings: RedisSettings, pool: ConnectionPool, *, sent: bool) -> Away | RedisRefused:
    """Return what an error of redis-py means."""
    if fault := certificate_fault(settings, error):
        return RedisRefused(f"TLS with Redis at {_place(pool)} failed: {fault}")
    if isinstance(error, (AuthenticationError, AuthorizationError, NoPermissionError)):
        return _refused(error, pool)
    if type(error) is ResponseError:
        return _said_by_redis(str(error), pool, sent=sent)
    return Away(f"{type(error).__name__}: {_begin(error)}".removesuffix(": "), sent=sent)


def _said_by_redis(text: str, pool: ConnectionPool, *, sent: bool) -> Away | RedisRefused:
    """Return what an error that Redis answered means."""
    if text.removeprefix("ERR ").startswith(_PASSING):
        return Away(_begin(text), sent=sent)
    return _refused(text, pool)


def _refused(error: BaseException | str, pool: ConnectionPool) -> RedisRefused:
    return RedisRefused(f"{RedisRefused.__doc__} It says: {_begin(error)} (Redis at {_place(pool)})")


def _place(pool: ConnectionPool) -> str:
    return f"{pool.connection_kwargs['host']}:{pool.connection_kwargs['port']}"


def _begin(error: BaseException | str) -> str:
    # redis-py appends commands, which hold bodies, to some.
    return (str(error).splitlines() or [""])[0][:200]
