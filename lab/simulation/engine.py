"""The engine of the simulation, where worker groups run, and the driver with which a daemon reaches it.

Workers outlive daemons and drivers, as processes do. The plan of a key says what goes wrong at the start of its groups.
Faults have the whole engine refuse calls, or hide from drivers, for a while.
"""

from __future__ import annotations

import asyncio
import builtins
import random
from collections.abc import AsyncIterator
from contextvars import Context
from dataclasses import dataclass
from typing import TYPE_CHECKING

from osrdyne.drivers.base import Change, Group, GroupState, How, WorkerEnd
from osrdyne.errors import DriverError
from simulation import scenario
from simulation.workers import Worker, WorkerCrashed

if TYPE_CHECKING:
    from simulation.world import World

#: Seconds that the engine takes for a call.
_CALL_SECONDS = 0.01
#: Seconds after which a worker that does not stop is killed.
_GRACE_SECONDS = 30.0
#: Seconds that a slow start takes.
_SLOW_START_SECONDS = 12.0
#: In this share of all runs, a daemon that is started again has another template.
_CHANGED_TEMPLATES = 0.2


@dataclass(slots=True)
class _RunningGroup:
    """A group of one worker, from its start to its end."""

    key: str
    name: str
    task: asyncio.Task[None]
    worker: Worker
    template: str
    began: float = 0.0
    stopping: bool = False
    #: The template of the group that follows it, if any.
    start_again: str | None = None


class Engine:
    """Runs the groups of all daemons of one machine."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.running: dict[str, _RunningGroup] = {}
        self._drivers: list[ModelDriver] = []
        self._changes_template = random.Random(f"changed template {world.scenario.seed}").random() < _CHANGED_TEMPLATES
        self._templates = 0
        self._number = 0
        #: While true, starts and stops fail.
        self.refuses = False
        #: While true, listings fail and changes end.
        self.blind = False
        #: Seconds that a listing takes for each group.
        self.listing_each = 0.0

    def driver(self) -> ModelDriver:
        """Return a driver for a daemon that starts now."""
        if self._changes_template:
            self._templates += 1
        made = ModelDriver(self, self._world, f"template {self._templates}")
        self._drivers.append(made)
        return made

    def forget(self, driver: ModelDriver) -> None:
        if driver in self._drivers:
            self._drivers.remove(driver)

    async def start(self, key: str, template: str) -> None:
        plan = self._world.key_plan(key)
        await asyncio.sleep(_SLOW_START_SECONDS if plan.start == scenario.SLOW else _CALL_SECONDS)
        if self.refuses or plan.start == scenario.REFUSED:
            raise DriverError("the engine refuses")
        found = self.running.get(key)
        if found is None:
            self._spawn(key, plan, template)
        elif found.stopping:
            found.start_again = template

    def _spawn(self, key: str, plan: scenario.KeyPlan, template: str) -> None:
        self._number += 1
        name = f"worker {self._number}"
        worker = self._world.worker(key, name)
        task = asyncio.get_running_loop().create_task(self._run_worker(worker, plan), name=name, context=Context())
        self.running[key] = _RunningGroup(key, name, task, worker, template, self._world.loop.time())
        task.add_done_callback(lambda done: self._ended(key, done))
        self._world.note("group started", name, key)

    async def _run_worker(self, worker: Worker, plan: scenario.KeyPlan) -> None:
        await asyncio.sleep(plan.boot)
        if plan.start == scenario.EXITS:
            raise WorkerCrashed("it exits at once")
        if plan.start == scenario.DEAF:
            await asyncio.get_running_loop().create_future()
        await worker.run()

    async def stop(self, key: str, template: str) -> None:
        await asyncio.sleep(_CALL_SECONDS)
        if self.refuses:
            raise DriverError("the engine refuses")
        found = self.running.get(key)
        if found is not None and not found.stopping:
            found.stopping = True
            # A group with an old template may be stopped whatever it has to do.
            load = self._world.load_of(key) if found.template == template else None
            self._world.note("group stopping", found.name, key, load)
            found.worker.stop()
            asyncio.get_running_loop().call_later(_GRACE_SECONDS, self._end, found, context=Context())

    def kill(self, key: str) -> None:
        """End a worker at once, as SIGKILL does."""
        if key in self.running:
            self._end(self.running[key])

    def _end(self, group: _RunningGroup) -> None:
        if group.worker.connection is not None:
            self._world.broker.kill(group.worker.connection)
        group.task.cancel()

    def _ended(self, key: str, task: asyncio.Task[None]) -> None:
        group = self.running.pop(key)
        killed = None if group.stopping else WorkerCrashed("killed")
        error = killed if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, WorkerCrashed):
            self._world.note("simulation failed", group.name, key, repr(error))
        self._world.note("group gone", group.name, key, None if error is None else str(error))
        if group.start_again is not None:
            self._spawn(key, self._world.key_plan(key), group.start_again)
        how = How.STOPPED if group.stopping else How.SIGNAL if task.cancelled() else How.EXIT
        end = WorkerEnd(how, worker_id=group.name, seconds=self._world.loop.time() - group.began)
        for driver in self._drivers:
            driver.news.put_nowait(Change(key, None if error is None else str(error), end))

    def groups(self) -> builtins.list[Group]:
        return [
            Group(group.key, GroupState.STOPPING if group.stopping else GroupState.RUNNING, 1, group.template)
            for group in self.running.values()
        ]


class ModelDriver:
    """The driver of one daemon, as `osrdyne.drivers.base.Driver` has it."""

    owns_workers = True

    def __init__(self, engine: Engine, world: World, template: str) -> None:
        self.template = template
        self._engine = engine
        self._world = world
        self.news: asyncio.Queue[Change | None] = asyncio.Queue()

    async def start(self, key: str) -> None:
        await self._engine.start(key, self.template)

    async def stop(self, key: str) -> None:
        await self._engine.stop(key, self.template)

    async def list(self) -> builtins.list[Group]:
        await asyncio.sleep(_CALL_SECONDS + self._engine.listing_each * len(self._engine.running))
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
