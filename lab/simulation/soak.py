"""The soak: an hour of virtual time in which many keys come and go, and how large the daemon and the client become.

The daemon, the client and one worker of the worker library are the real ones; the other workers are the simulation's.
Most keys are called once and answered. Of some the workers do not start, crash or refuse, some calls are given up,
some want no reply; now and then the connections of daemon, client and worker are cut. A key that is gone must leave
nothing behind: no container may be larger in the last tenth of the hour than in the first, however many keys were.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from osrdyne_amqp import Connection
from osrdyne_client import AsyncClient
from osrdyne_client.errors import RemoteError
from osrdyne_pool.settings import PoolLimits, PoolSettings
from simulation import scenario, virtual_time
from simulation.model import History
from simulation.model.timing import Range
from simulation.scenario import KeyPlan, Kind, RequestPlan, Scenario
from simulation.sizes import sizes
from simulation.soak_report import Report, Sample
from simulation.soak_workers import Fleet, FleetWorker, LibraryWorker
from simulation.ticking_time import TickingLoop
from simulation.workers import WATCH, Worker
from simulation.world import World, daemon_settings, only_errors_noted

#: Virtual seconds: of the load, and between two looks whether the last key is gone.
LENGTH_SECONDS, _LOOK_SECONDS = 3600.0, 30.0
#: Samples within the load, and at every how many of them all garbage is collected.
SAMPLES, _COLLECT = 120, 2
#: When connections are cut, as parts of the load: in its first and in its last tenth, because what lives as long as a
#: connection must have the time to grow.
_CUTS = (0.03, 0.05, 0.07, 0.93, 0.95, 0.97)
#: A key whose one worker, of the worker library, serves all the time.
STEADY = "steady"
_SLOTS = 8192
#: Limits of a daemon for hundreds of new keys a second.
_LIMITS = {
    "start_grace": 15.0,
    "starts_in_flight": 512,
    "orphan_prefetch": 1024,
    "dead_letter_prefetch": 1024,
    "queue_actions": 256,
    "new_keys": 1_000_000,
}


def key_plan(key: str) -> KeyPlan:
    """Return how the workers of a key behave; those of one in a hundred do not start as they should."""
    number = _number_of(key)
    if number % 97 == 5:
        return KeyPlan(key, (scenario.REFUSED, scenario.SLOW, scenario.DEAF, scenario.EXITS)[number // 97 % 4])
    return KeyPlan(key)


def request_plan(name: str) -> RequestPlan:
    """Return what the worker of a request does; few crash it, because the poison inventory is bounded."""
    number = _number_of(name)
    do = scenario.CRASH if number % 2003 == 7 else scenario.REJECT if number % 89 == 11 else scenario.ANSWER
    return RequestPlan(name, 0.0, name, do)


def steady_requests(keys: int, length: float) -> int:
    """Return how many requests are for the steady key."""
    return max(keys // 20, int(length / 2))


def _number_of(name: str) -> int:
    return int(name.partition("-")[2] or 0)


class _World(World):
    """A world whose client is the real one, and whose steady key has a worker of the worker library."""

    def __init__(self, keys: int, length: float) -> None:
        pool = PoolSettings(
            "core",
            unbind_delay=4.0,
            stop_delay=2.0,
            message_ttl=90.0,
            orphan_ttl=40.0,
            consumer_timeout=25.0,
            limits=PoolLimits(groups=100_000),
        )
        super().__init__(Scenario(0, Kind.CALM, "4.3", pool, (), (), (), end=length), History())
        self.broker.record = _forget  # type: ignore[method-assign]
        self.keys = keys
        self.length = length
        self.clients = []
        self.daemon_settings = daemon_settings(pool, _LIMITS, statistics_interval=1.5)
        # A broker whose statistics are young, and that answers at once what the daemon asks before it deletes a queue:
        # else that, of which four calls are under way at a time, would bound how many keys can go in a second.
        timing = self.broker.timing
        timing.statistics_interval, timing.statistics_lag = 1.0, Range(0.0, 0.2)
        timing.management = Range(0.0, 0.0)
        #: An engine takes a while to list thousands of groups.
        self.engine.listing_each = 0.0002
        #: When connections are cut, what is asked for within seconds waits.
        self.client = AsyncClient(self.uris["client"], "core", slots=_SLOTS)
        self.came_to: Counter[str] = Counter()
        self.errors: list[str] = []
        self.fleet = Fleet(self)

    def note(self, kind: str, actor: str, place: str = "", detail: Any = None) -> None:
        """Keep nothing but errors."""
        if kind in ("error logged", "simulation failed"):
            self.errors.append(f"{actor}: {kind}: {detail}")

    def key_plan(self, key: str) -> KeyPlan:
        return key_plan(key)

    def request_plan(self, name: str) -> RequestPlan:
        return request_plan(name)

    def worker(self, key: str, name: str) -> Worker:
        if key == STEADY:
            return LibraryWorker(self, key, name)
        if request_plan(key).do == scenario.CRASH or not key_plan(key).healthy:
            # What goes wrong with it must not reach others.
            return Worker(self, key, name)
        return FleetWorker(self, self.fleet, key, name)

    async def load(self) -> None:
        """Send what is to be sent within the hour."""
        for number in range(self.keys):
            self._send(number)
            await self.until((number + 1) / self.keys)

    async def steady_load(self) -> None:
        """Ask for the steady key so often that it never rests."""
        for number in range(count := steady_requests(self.keys, self.length)):
            self._count(self.client.submit(STEADY, b"steady"))
            await self.until((number + 1) / count)

    async def until(self, part: float) -> None:
        """Wait until this part of the load is over; it may be already, because the clock ticks."""
        left = part * self.length - self.loop.time()
        if left > 0:
            await asyncio.sleep(left)

    def _send(self, number: int) -> None:
        key, body = f"key-{number}", f"request-{number}".encode()
        if number % 73 == 3:
            self._count(self.loop.create_task(self.client.cast(key, body)))
            return
        call = self.client.submit(key, body)
        self._count(call)
        if number % 79 == 13:
            self.loop.call_later(0.1, call.cancel)

    def _count(self, call: asyncio.Future[Any]) -> None:
        call.add_done_callback(self._counted)

    def _counted(self, call: asyncio.Future[Any]) -> None:
        if call.cancelled():
            self.came_to["given up"] += 1
            return
        error = call.exception()
        if error is None:
            self.came_to["ok"] += 1
        else:
            self.came_to[error.status if isinstance(error, RemoteError) else type(error).__name__] += 1

    async def cut(self) -> None:
        """Cut all connections."""
        for part in _CUTS:
            await self.until(part)
            daemon = self.daemons[0].connection
            for name in self.broker.connection_names():
                if name == daemon or name.startswith("osrdyne "):
                    self.broker.cut(name)

    def sample(self, *, collect: bool) -> Sample:
        """Measure everything."""
        if collect:
            gc.collect()
        daemon, steady = self.daemons[0], self.engine.running.get(STEADY)
        roots = (daemon.state, daemon.task, self.client, steady and steady.task)
        found = sizes(root for root in roots if root is not None)
        assert isinstance(self.loop, TickingLoop)
        found["timers"] = self.loop.waiting()
        prefix = self.names.request_queue_prefix
        return Sample(
            self.loop.time(),
            sum(name.startswith(prefix) for name in self.broker.queue_names()),
            sum(_is_ours(task) for task in asyncio.all_tasks()),
            found,
            _resident() if collect else None,
        )


def _forget(*_: Any, **__: Any) -> None:
    """Keep no history: it would be the largest of all."""


def _is_ours(task: asyncio.Task[Any]) -> bool:
    frame = getattr(task.get_coro(), "cr_frame", None)
    return frame is not None and str(frame.f_globals["__name__"]).startswith("osrdyne") and task.get_name() != WATCH


def _resident() -> int:
    """Return the bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def soak(
    keys: int,
    length: float = LENGTH_SECONDS,
    *,
    samples: int = SAMPLES,
    sampled: Callable[[Sample], None] = lambda _: None,
) -> Report:
    """Let `keys` keys be called once each within `length` seconds; `sampled` gets each sample as it is taken."""
    return virtual_time.run(0, lambda: _run(keys, length, samples, sampled), TickingLoop)


async def _run(keys: int, length: float, samples: int, sampled: Callable[[Sample], None]) -> Report:
    world = _World(keys, length)
    report = Report(keys)
    loop = world.loop
    LibraryWorker.served = 0
    with only_errors_noted(world.note), mock.patch.object(Connection, "open", world.connect):
        world.start()
        await world.client.open()
        tasks = [loop.create_task(work) for work in (world.load(), world.steady_load(), world.cut())]
        for number in range(1, samples + 1):
            await world.until(number / samples)
            report.samples.append(world.sample(collect=number % _COLLECT == 0))
            sampled(report.samples[-1])
        for task in tasks:
            await task
        while not world.at_rest():  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(_LOOK_SECONDS)
        report.samples.append(world.sample(collect=True))
        sampled(report.samples[-1])
        await world.client.close()
    report.came_to, report.served = world.came_to, LibraryWorker.served
    report.asked = keys + steady_requests(keys, length)
    report.complaints = [*world.errors, *getattr(loop, "complaints", ())]
    return report


def main(keys: int) -> int:
    """Print how large things became; the exit code is 1 when something grew, or was not answered."""
    report = soak(
        keys, sampled=lambda sample: print(sample.line(), flush=True) if sample.resident is not None else None
    )
    for line in report.lines():
        print(line, flush=True)
    return 1 if any(report.findings()) else 0
