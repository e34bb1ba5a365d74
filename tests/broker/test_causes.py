"""Each cause of docs/reference/causes.md on a real pool of subprocesses: who asks reads the words of the page."""

from __future__ import annotations

import asyncio
import concurrent.futures
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from osrdyne_client import AsyncClient, CallTimeout
from testbed.asking import Askers, Events
from testbed.broker import Broker
from testbed.causes import COMMAND, PYTHON, causes
from testbed.outages import moved
from testbed.peer import make_request_queue
from testbed.pool import DaemonProcess, Pool
from testbed.tcp_proxy import TcpProxy
from testbed.waiting import PATIENCE_SECONDS, until, until_async
from tests.broker.test_waits import ill

MakePool = Callable[..., Pool]
MakeDaemon = Callable[..., DaemonProcess]

#: A worker that does this with each request.
SERVE = """
import ctypes, os, signal, time
from osrdyne_worker import run

def handle(request):
    {}

run(handle)
"""
#: Memory for the interpreter, and not for what is asked for.
LITTLE_MEMORY = "import resource; resource.setrlimit(resource.RLIMIT_AS, (4 << 30,) * 2)\n"
MUCH = "bytearray(64 << 30)"
WRONG_PASSWORD = """
import os
from osrdyne_runtime.addresses import *
user, _, rest = os.environ["WORKER_AMQP_URI"].partition("@")
os.environ["WORKER_AMQP_URI"] = user.rpartition(":")[0] + ":wrong@" + rest
os.environ.pop("WORKER_AMQP_URI_FILE", None)
"""


@dataclass(frozen=True)
class CauseSetup:
    """How a cause is made: the worker's program, and settings of pool and daemon."""

    program: str = ""
    command: list[str] = field(default_factory=list)
    pool: dict[str, Any] = field(default_factory=dict)
    tables: dict[str, Any] = field(default_factory=dict)
    #: Callers ask once `status` says it: the first try may take longer than the time of their requests.
    told_first: bool = False

    @property
    def worker(self) -> list[str]:
        return self.command or [sys.executable, "-c", self.program]


def dies(line: str, **pool: Any) -> CauseSetup:
    return CauseSetup(SERVE.format(line), pool={"delivery_limit": 1, **pool})


MISSING_FILE = "open('data/XX.json')"
MADE = {
    "a file that it needs is missing": CauseSetup(MISSING_FILE),
    "a module is missing": CauseSetup("import no_such_module"),
    "it needs more memory than its limit at its start": CauseSetup(LITTLE_MEMORY + MUCH),
    "its program is missing": CauseSetup(command=["/nowhere/worker"]),
    "its password is wrong": CauseSetup(WRONG_PASSWORD + SERVE.format("pass")),
    # A shell, because Python may need longer than the grace to say a word on a machine under load.
    "it runs, and never says `started`": CauseSetup(
        command=["/bin/sh", "-c", "echo loading the model; exec sleep 1000"], tables={"limits": {"start_grace": 1.0}}
    ),
    "the handler ends the process": dies("os._exit(3)"),
    "it has a segmentation fault": dies("ctypes.string_at(0)"),
    "it is killed from outside": dies("os.kill(os.getpid(), signal.SIGKILL)"),
    "the handler hangs": dies("time.sleep(1000)", consumer_timeout=4.0),
    "the handler raises": CauseSetup(SERVE.format("{}['9']")),
    "the handler returns what is not bytes": CauseSetup(SERVE.format("return 5")),
    "the handler needs more memory than its limit": CauseSetup(LITTLE_MEMORY + SERVE.format(MUCH)),
    "a file is missing, and `start_failures` is 0": CauseSetup(
        MISSING_FILE, pool={"start_failures": 0, "message_ttl": 2.0}, told_first=True
    ),
}
#: In `make test`: quick ones of each kind.
QUICK = {"a file that it needs is missing", "its program is missing", "the handler raises"}


@pytest.fixture
def ask(make_pool: MakePool, make_daemon: MakeDaemon) -> Iterator[Callable[..., Askers]]:
    """Make a pool with a daemon, and those who ask about it."""
    made: list[Events] = []

    def of(how: CauseSetup) -> Askers:
        pool = make_pool(**{"start_failures": 3, **how.pool})
        made.append(Events(pool))
        return Askers(pool, make_daemon(pool, worker=how.worker, **how.tables), made[-1])

    yield of
    for events in made:
        events.close()


@pytest.mark.parametrize(
    "title", [pytest.param(title, marks=() if title in QUICK else pytest.mark.full, id=title) for title in MADE]
)
def test_each_who_asks_reads_what_broke(ask: Callable[[CauseSetup], Askers], title: str) -> None:
    how, cause = MADE[title], causes()[title]
    askers = ask(how)
    if how.told_first:
        askers.until_told(cause)
    askers.check(cause, askers.callers())


# --- what no queue or broker takes ------------------------------------------------------------------------------------

REFUSED, BUSY = "the broker refuses the key's queue", "all workers are busy until the deadline"
ALARM, AWAY = "the broker is in an alarm", "the broker is away"


@pytest.mark.full
def test_each_who_asks_reads_that_the_broker_refuses_the_queue(ask: Callable[[CauseSetup], Askers]) -> None:
    # The pool's time ends a request here, and not the caller's: that leaves the daemon's reply a tenth of a second
    askers = ask(CauseSetup(SERVE.format("pass"), pool={"orphan_ttl": 2.0}))
    pool, cause = askers.pool, causes()[REFUSED]
    # Room for the reply queue of one caller at a time
    pool.broker.management.put("vhost-limits", pool.vhost, "max-queues", body={"value": len(pool.queues()) + 1})
    askers.until_told(cause)
    askers.check(cause, askers.callers())


@pytest.mark.full
def test_each_who_asks_reads_that_no_worker_was_free(ask: Callable[[CauseSetup], Askers], tmp_path: Path) -> None:
    work = tmp_path / "work"
    askers = ask(
        CauseSetup(SERVE.format(f"while os.path.exists({str(work)!r}): time.sleep(0.1)"), pool={"message_ttl": 2.0})
    )
    # Given a worker, which then is busy
    until(lambda: askers.in_python(b"x", PATIENCE_SECONDS) == ["answer b''"], what="a worker")
    work.touch()
    received = partial(askers.events.count, askers.key, "request-received")
    before = received()
    with concurrent.futures.ThreadPoolExecutor() as others:
        others.submit(askers.in_python, b"x", PATIENCE_SECONDS)
        until(lambda: received() > before, what="a worker that is busy")
        try:
            said = askers.callers()
        finally:
            work.unlink()
    askers.check(causes()[BUSY], said)


@dataclass
class MovedPool(Pool):
    """A pool whose programs reach the broker at another port."""

    port: int = 0

    def uri(self, user: str) -> str:
        return moved(super().uri(user), self.broker.amqp_port, self.port)


@pytest.mark.full
async def test_each_who_asks_reads_of_an_alarm(private_broker: Broker, make_daemon: MakeDaemon) -> None:
    pool = Pool.on(private_broker, "/")
    await make_request_queue(pool, "XX")
    daemon = await asyncio.to_thread(make_daemon, pool)
    askers = Askers(pool, daemon, await asyncio.to_thread(Events, pool))
    async with AsyncClient(pool.client_uri, "core", timeout=2.0) as client:
        await client.cast("XX", b"the key is proven")
        async with ill(private_broker, "disk alarm"):
            # The broker takes the first message of a connection that has sent none in this alarm.
            with suppress(CallTimeout):
                await client.cast("XX", b"")
            with pytest.raises(CallTimeout) as caught:
                await client.call("XX", b"")
            said = {PYTHON: [f"CallTimeout: {caught.value}"]}
            # Its time is for its connection, too
            said[COMMAND] = await asyncio.to_thread(askers.by_command, b"x", 10.0)
            await asyncio.to_thread(askers.check, causes()[ALARM], said)
    askers.events.close()


@pytest.mark.full
async def test_each_who_asks_reads_that_the_broker_is_away(make_pool: MakePool, make_daemon: MakeDaemon) -> None:
    pool = await asyncio.to_thread(make_pool)
    events = await asyncio.to_thread(Events, pool)
    async with TcpProxy(pool.broker.amqp_port) as proxy:
        way = MovedPool(pool.broker, pool.vhost, pool.settings, pool.users, pool.passwords, port=proxy.port)
        daemon = await asyncio.to_thread(make_daemon, way)
        askers = Askers(way, daemon, events)
        async with AsyncClient(way.client_uri, "core", timeout=2.0) as client:
            proxy.cut(refuse=True)
            await until_async(lambda: not client.is_connected)
            with pytest.raises(CallTimeout) as caught:
                await client.call("XX", b"")
            said = {PYTHON: [f"CallTimeout: {caught.value}"]}
            said[COMMAND] = await asyncio.to_thread(askers.by_command, b"x", 2.0)
            await asyncio.to_thread(askers.check, causes()[AWAY], said)
    events.close()
