"""Workers of the worker library in a simulation, whose processes die of requests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from osrdyne_calls.handling import Outcome, Request, invoke_async
from osrdyne_calls.runners import Done, OnLoop, Runner, Withdraw
from osrdyne_worker import WorkerEnvironment, WorkerOptions
from osrdyne_worker.loop import Worker as Library
from simulation import scenario
from simulation.workers import DIED_AT_WORK, Worker, WorkerCrashed

if TYPE_CHECKING:
    from simulation.world import World


class OneByOne:
    """Runs handlers as one thread does: one at a time, and those that wait can be taken back."""

    def __init__(self, world: World, handler: LibraryWorker) -> None:
        self._world = world
        self._handler = handler
        self._waiting: dict[int, tuple[Request, Done]] = {}
        self._running: asyncio.Task[Outcome] | None = None

    def start(self, request: Request, done: Done) -> Withdraw:
        self._waiting[id(request)] = (request, done)
        self._next()
        return lambda: self._waiting.pop(id(request), None) is not None

    def _next(self) -> None:
        if self._running is not None or not self._waiting:
            return
        request, done = self._waiting.pop(next(iter(self._waiting)))
        self._running = self._world.loop.create_task(invoke_async(self._handler.handle, request), name="handler")

        def finished(task: asyncio.Task[Outcome]) -> None:
            self._running = None
            if not task.cancelled():
                done(task.result())
                self._next()

        self._running.add_done_callback(finished)

    async def end(self, request: Request) -> bool:
        return False

    def close(self) -> None:
        self._waiting.clear()
        if self._running is not None:
            self._running.cancel()


class LibraryWorker(Worker):
    """One process with a worker of the library. A request that crashes ends it at once."""

    def __init__(self, world: World, key: str, name: str) -> None:
        super().__init__(world, key, name)
        self._stop = asyncio.Event()
        self._died: asyncio.Future[str] = world.loop.create_future()
        names, pool = world.names, world.scenario.pool
        self._environment = WorkerEnvironment(
            name,
            key,
            names.pool,
            names.request_queue(key),
            names.activity_exchange,
            world.uris["worker"],
            consumer_timeout_ms=int(pool.consumer_timeout * 1000),
        )

    def stop(self) -> None:
        self._stop.set()

    async def run(self) -> None:
        world = self._world
        runner: Runner = OnLoop(self.handle) if world.scenario.all_begun else OneByOne(world, self)
        library = Library(self._environment, runner, WorkerOptions(prefetch=world.scenario.prefetch))
        serving = world.loop.create_task(library.run(self._stop), name=f"{self.name} serves")
        try:
            await asyncio.wait((serving, self._died), return_when=asyncio.FIRST_COMPLETED)
            if self._died.done():
                raise WorkerCrashed(self._died.result())
            serving.result()
        finally:
            for name in world.broker.connection_names():
                if name.startswith(f"osrdyne worker {self.name} of "):
                    world.broker.kill(name)
            serving.cancel()
            runner.close()

    async def handle(self, request: Request) -> bytes:
        """Do what the plan of a request says."""
        name = request.body.decode()
        plan = self._world.request_plan(name)
        assert plan is not None
        await asyncio.sleep(plan.work)
        if plan.do == scenario.CRASH:
            self._world.note("died", self.name, name)
            self._died.set_result(f"request {request.body!r} {DIED_AT_WORK}")
            await self._world.loop.create_future()
        self._world.note("served", self.name, name)
        return request.body
