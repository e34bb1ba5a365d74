"""The engine of the simulation, where worker groups run, and the driver with which a daemon reaches it.

Workers outlive daemons and drivers, as processes do. What may go wrong at a start is the key's plan; that the
engine refuses or cannot be seen for a while is a fault.
"""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import AsyncIterator
from contextvars import Context
from dataclasses import dataclass
from typing import TYPE_CHECKING

from osrdyne.drivers.base import Change, Group, GroupState
from osrdyne.errors import DriverError
from simulation import scenario as plans
from simulation.workers import Crashed, Worker

if TYPE_CHECKING:
    from simulation.world import World

#: Seconds that the engine takes for one call, and after which a worker that does not stop is killed.
_CALL = 0.01
_GRACE = 30.0
#: A slow start takes this long, in seconds; a start that is refused says so after a moment.
_SLOW = 12.0
TEMPLATE = "template"


@dataclass(slots=True)
class _Running:
    """One group."""

    key: str
    name: str
    task: asyncio.Task[None]
    worker: Worker
    stopping: bool = False
    start_again: bool = False


class Engine:
    """Runs the groups of all daemons of one machine."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.running: dict[str, _Running] = {}
        self._drivers: list[ModelDriver] = []
        self._number = 0
        #: Every call fails while one of these is true: those that change something, the listing.
        self.refuses = False
        self.blind = False
        #: Seconds that a listing takes for each group.
        self.listing_each = 0.0

    def driver(self) -> ModelDriver:
        """Return a driver for a daemon that starts now."""
        made = ModelDriver(self, self._world)
        self._drivers.append(made)
        return made

    def forget(self, driver: ModelDriver) -> None:
        if driver in self._drivers:
            self._drivers.remove(driver)

    async def start(self, key: str) -> None:
        plan = self._world.key_plan(key)
        await asyncio.sleep(_SLOW if plan.start == plans.SLOW else _CALL)
        if self.refuses or plan.start == plans.REFUSED:
            raise DriverError("the engine refuses")
        found = self.running.get(key)
        if found is None:
            self._spawn(key, plan)
        elif found.stopping:
            found.start_again = True

    def _spawn(self, key: str, plan: plans.KeyPlan) -> None:
        self._number += 1
        name = f"worker {self._number}"
        worker = self._world.worker(key, name)
        task = asyncio.get_running_loop().create_task(self._life(worker, plan), name=name, context=Context())
        self.running[key] = _Running(key, name, task, worker)
        task.add_done_callback(lambda done: self._ended(key, done))
        self._world.note("group started", name, key)

    async def _life(self, worker: Worker, plan: plans.KeyPlan) -> None:
        await asyncio.sleep(plan.boot)
        if plan.start == plans.EXITS:
            raise Crashed("it exits at once")
        if plan.start == plans.DEAF:
            await asyncio.get_running_loop().create_future()
        await worker.run()

    async def stop(self, key: str) -> None:
        await asyncio.sleep(_CALL)
        if self.refuses:
            raise DriverError("the engine refuses")
        found = self.running.get(key)
        if found is not None and not found.stopping:
            found.stopping = True
            self._world.note("group stopping", found.name, key, self._world.load_of(key))
            found.worker.stop()
            asyncio.get_running_loop().call_later(_GRACE, self._end, found, context=Context())

    def kill(self, key: str) -> None:
        """End a worker at once, as SIGKILL does."""
        if key in self.running:
            self._end(self.running[key])

    def _end(self, group: _Running) -> None:
        if group.worker.connection is not None:
            self._world.broker.kill(group.worker.connection)
        group.task.cancel()

    def _ended(self, key: str, task: asyncio.Task[None]) -> None:
        group = self.running.pop(key)
        killed = None if group.stopping else Crashed("killed")
        error = killed if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, Crashed):
            self._world.note("simulation failed", group.name, key, repr(error))
        self._world.note("group gone", group.name, key, None if error is None else str(error))
        if group.start_again:
            self._spawn(key, self._world.key_plan(key))
        for driver in self._drivers:
            driver.news.put_nowait(Change(key, None if error is None else str(error)))

    def groups(self) -> builtins.list[Group]:
        return [
            Group(one.key, GroupState.STOPPING if one.stopping else GroupState.RUNNING, 1, TEMPLATE)
            for one in self.running.values()
        ]


class ModelDriver:
    """`osrdyne.drivers.base.Driver` of one daemon."""

    owns_workers = True
    template = TEMPLATE

    def __init__(self, engine: Engine, world: World) -> None:
        self._engine = engine
        self._world = world
        self.news: asyncio.Queue[Change | None] = asyncio.Queue()

    async def start(self, key: str) -> None:
        await self._engine.start(key)

    async def stop(self, key: str) -> None:
        await self._engine.stop(key)

    async def list(self) -> builtins.list[Group]:
        await asyncio.sleep(_CALL + self._engine.listing_each * len(self._engine.running))
        if self._engine.blind:
            raise DriverError("the engine cannot be listed")
        return self._engine.groups()

    async def changes(self) -> AsyncIterator[Change]:
        while (change := await self.news.get()) is not None:
            if self._engine.blind:
                raise DriverError("the engine's changes broke off")
            yield change

    async def close(self) -> None:
        self._engine.forget(self)
        self.news.put_nowait(None)
