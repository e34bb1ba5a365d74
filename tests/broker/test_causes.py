"""Each cause of docs/reference/causes.md on a real pool of subprocesses: who asks reads the words of the page."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
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
from testbed.waiting import until, until_async
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
    """How a cause is made: the worker's program, and settings of pool and daemon. `timeout`: seconds of a call."""

    program: str = ""
    command: list[str] = field(default_factory=list)
    pool: dict[str, Any] = field(default_factory=dict)
    tables: dict[str, Any] = field(default_factory=dict)
    timeout: float = 60.0
    #: What callers read while workers are tried is not of interest.
    tried_first: bool = False

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
    "it runs, and never says `started`": CauseSetup(
        "print('loading the model', flush=True)\nimport time; time.sleep(1000)",
        tables={"limits": {"start_grace": 1.0}},
        tried_first=True,
    ),
    "the handler ends the process": dies("os._exit(3)"),
    "it has a segmentation fault": dies("ctypes.string_at(0)"),
    "it is killed from outside": dies("os.kill(os.getpid(), signal.SIGKILL)"),
    "the handler hangs": dies("time.sleep(1000)", consumer_timeout=4.0),
    "the handler raises": CauseSetup(SERVE.format("{}['9']")),
    "the handler returns what is not bytes": CauseSetup(SERVE.format("return 5")),
    "the handler needs more memory than its limit": CauseSetup(LITTLE_MEMORY + SERVE.format(MUCH)),
    "a file is missing, and `start_failures` is 0": CauseSetup(MISSING_FILE, pool={"start_failures": 0}, timeout=6.0),
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
    if how.tried_first:
        askers.in_python(b"x", how.timeout)
    said = {PYTHON: askers.in_python(b"x", how.timeout), COMMAND: askers.by_command(b"x", how.timeout)}
    askers.check(cause, said)


# --- what no queue or broker takes ------------------------------------------------------------------------------------

REFUSED, BUSY = "the broker refuses the key's queue", "all workers are busy until the deadline"
ALARM, AWAY = "the broker is in an alarm", "the broker is away"


@pytest.mark.full
def test_each_who_asks_reads_that_the_broker_refuses_the_queue(ask: Callable[[CauseSetup], Askers]) -> None:
    askers = ask(CauseSetup(SERVE.format("pass")))
    pool = askers.pool
    # Room for the reply queue of one caller at a time
    pool.broker.management.put("vhost-limits", pool.vhost, "max-queues", body={"value": len(pool.queues()) + 1})
    said = {PYTHON: askers.in_python(b"x", 4.0), COMMAND: askers.by_command(b"x", 4.0)}
    askers.check(causes()[REFUSED], said)


@contextmanager
def busy(askers: Askers) -> Iterator[None]:
    """Keep the only worker busy."""
    before = sum(line.startswith("request-received") for line in askers.events.of(askers.key))
    caller = threading.Thread(target=askers.in_python, args=(b"x", 60.0))
    caller.start()
    until(
        lambda: sum(line.startswith("request-received") for line in askers.events.of(askers.key)) > before,
        what="a worker that is busy",
    )
    try:
        yield
    finally:
        caller.join()


@pytest.mark.full
def test_each_who_asks_reads_that_no_worker_was_free(ask: Callable[[CauseSetup], Askers]) -> None:
    askers = ask(CauseSetup(SERVE.format("time.sleep(6)")))
    with busy(askers):
        said = {PYTHON: askers.in_python(b"x", 2.0)}
    with busy(askers):
        said[COMMAND] = askers.by_command(b"x", 2.0)
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
            said[COMMAND] = await asyncio.to_thread(askers.by_command, b"x", 2.0)
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
