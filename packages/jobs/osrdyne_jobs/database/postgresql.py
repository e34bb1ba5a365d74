"""Connections to PostgreSQL: what they are opened with, and that no wait for an answer outlasts the call it is for."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from sqlalchemy import Engine, event
from sqlalchemy.exc import DisconnectionError

from osrdyne_jobs.database import addresses, bounds
from osrdyne_jobs.database.addresses import DatabaseAddress
from osrdyne_jobs.errors import InvalidAddress
from osrdyne_protocol.errors import OsrdyneError
from osrdyne_runtime import log_lines
from osrdyne_runtime.console.imports import extra
from osrdyne_runtime.outages import OutageLog

with extra("osrdyne-jobs[postgresql]"):
    import psycopg

log = log_lines.logger(__name__)

T = TypeVar("T")

#: Seconds after which PostgreSQL ends a transaction that does nothing: that of a worker that is gone, or hangs.
IDLE_IN_TRANSACTION_SECONDS = 60
#: Seconds between two looks of PostgreSQL, while a statement runs or waits, whether its client is still there.
CLIENT_CHECK_SECONDS = 10
#: Seconds for a connection to open, at each host. libpq takes no less than two.
CONNECT_SECONDS, LEAST_CONNECT_SECONDS = 10, 2
#: Seconds after which a connection that was not used is tried before it is used again.
PING_AFTER_SECONDS = 1.0
#: Both ends notice within half a minute that the other one is gone.
_KEEPALIVE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
#: What PgBouncer says of our options.
_REFUSED_BY_POOLER = "unsupported startup parameter"
_SERVER = {
    **{f"tcp_{name}": value for name, value in _KEEPALIVE.items()},
    "idle_in_transaction_session_timeout": IDLE_IN_TRANSACTION_SECONDS * 1000,
    "client_connection_check_interval": CLIENT_CHECK_SECONDS * 1000,
}


def set_up(engine: Engine, address: str | Callable[[], str], known: DatabaseAddress) -> None:
    """Have an engine connect to the address, which a function returns for each connection.

    Where that cannot be read, the last one is used: at first `known`.
    """
    last = known
    outage = OutageLog(log, "the database's address", meanwhile="the last one that was read counts")

    @event.listens_for(engine, "do_connect")
    def connects(dialect: Any, _: Any, __: Any, given: dict[str, Any]) -> Any:
        nonlocal last
        if not isinstance(address, str):
            try:
                last = _present(address)
            except Exception as error:  # noqa: BLE001 - of a function of the user's; its text may hold the address
                reason = str(error) if isinstance(error, OSError | OsrdyneError) else type(error).__name__
                outage.failed(reason, time.monotonic())
            else:
                outage.over(time.monotonic())
        # SQLAlchemy's own part is how values are converted.
        options = {"context": given.get("context"), **connecting(last)}
        try:
            if dialect.is_async:
                return dialect.loaded_dbapi.connect(async_creator_fn=_AsyncConnection.connect, **options)
            return _Connection.connect(**options)
        except psycopg.OperationalError as error:
            if _REFUSED_BY_POOLER not in str(error) or last.pooler:
                raise
            raise psycopg.OperationalError(
                "a pooler answers: add pooler=true to the address (docs/howto/jobs-deploy.md#databases)"
            ) from None

    _set_up_pings(engine)


def _present(address: Callable[[], str]) -> DatabaseAddress:
    found = addresses.read(address())
    if not found.is_postgresql:
        raise InvalidAddress("the database's address was one of PostgreSQL, and is another now; start this again")
    return found


def connecting(address: DatabaseAddress) -> dict[str, Any]:
    """Return what a connection is opened with now. What the address says itself is kept."""
    given = {"connect_timeout": CONNECT_SECONDS, "tcp_user_timeout": 30_000, **_KEEPALIVE, **address.parameters}
    if address.pooler:
        # It takes no options, and a statement that was prepared over one connection is not there over the next.
        given["prepare_threshold"] = None
    else:
        ours = " ".join(f"-c {name}={value}" for name, value in _SERVER.items())
        given["options"] = f"{ours} {given.get('options', '')}".strip()
    left = bounds.left()
    if left is not None:
        most = int(given["connect_timeout"]) or math.inf
        given["connect_timeout"] = max(LEAST_CONNECT_SECONDS, min(most, math.ceil(left / address.hosts)))
    return given


class _Connection(psycopg.Connection[Any]):
    def wait(self, gen: Generator[Any, Any, T], *given: Any, **named: Any) -> T:
        return super().wait(_bounded(gen, self), *given, **named)


class _AsyncConnection(psycopg.AsyncConnection[Any]):
    async def wait(self, gen: Generator[Any, Any, T], *given: Any, **named: Any) -> T:
        return await super().wait(_bounded(gen, self), *given, **named)


def _bounded(gen: Generator[Any, Any, T], connection: Any) -> Generator[Any, Any, T]:
    """Go on as `gen` does, which waits for the server, and close the connection when the call has no time left.

    A server that is alone then ends the statement by `client_connection_check_interval`.
    """
    left = bounds.left()
    if left is None:
        return (yield from gen)
    until = time.monotonic() + left
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() >= until:
                connection.pgconn.finish()
                raise psycopg.OperationalError("the database did not answer in time")
            wanted = gen.send(ready)
    except StopIteration as ended:
        result: T = ended.value
        return result


def _set_up_pings(engine: Engine) -> None:
    """Have a connection that rested for a while be tried before it is used: the server may have restarted.

    SQLAlchemy's `pool_pre_ping` tries each time, which costs a job a tenth of its time.
    """

    @event.listens_for(engine, "checkin")
    def rests(_: Any, record: Any) -> None:
        record.info["rests_since"] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def wakes(connection: Any, record: Any, _: Any) -> None:
        if time.monotonic() - record.info.get("rests_since", time.monotonic()) < PING_AFTER_SECONDS:
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise DisconnectionError from error  # the pool opens another one
