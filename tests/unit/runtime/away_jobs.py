"""Programs of jobs that are started while their database or broker is away.

They try to reach a port where nothing listens, or a file of SQLite whose folder is made later. Their threads have a
clock that only their waiting moves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from aiohttp import web
from sqlalchemy import Engine

from osrdyne_client import Client
from osrdyne_jobs import JobType, JobWorker, processes, redo, waiting, worker
from osrdyne_jobs.database.engines import check_tables, engine_for, migrate
from osrdyne_jobs.http import app
from osrdyne_pool.settings import RedoSettings
from osrdyne_protocol.worker_environment import WorkerEnvironment
from tests.unit.runtime.away_at_start import AFTER_SECONDS, AWAY_SECONDS, PLACE, Rig, WaitingProgram

DATABASE = f"postgresql://jobs:secret@{PLACE}/jobs"


class Clock:
    """An event that ends a program in time, and the clock of all who wait for it."""

    def __init__(self, rig: Rig, back: Callable[[], object]) -> None:
        self.now, self._back, self._is_back = 0.0, back, False
        time = SimpleNamespace(monotonic=lambda: self.now)
        for module in (processes, redo, waiting, worker):
            rig.patch.setattr(module, "time", time, raising=False)
        rig.patch.setattr(waiting, "threading", SimpleNamespace(Event=lambda: self))

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        if self.now >= AWAY_SECONDS and not self._is_back:
            self._is_back = True
            self._back()
        return self.is_set()

    def is_set(self) -> bool:
        return self.now >= AWAY_SECONDS + AFTER_SECONDS

    def set(self) -> None:
        """It is set in time."""


class LateBroker:
    """Makes clients that find no broker, and later clients that have one."""

    def __init__(self) -> None:
        self.is_back = False

    def come_back(self) -> None:
        self.is_back = True

    def client(self) -> Any:
        nothing = SimpleNamespace(open=lambda: None, close=lambda: None)
        return nothing if self.is_back else Client(f"amqp://jobs:secret@{PLACE}/v", "core")


class LateDatabase:
    """A file of SQLite in a folder that is made later."""

    def __init__(self, directory: Path) -> None:
        self.folder = directory / "later"
        self.engine = engine_for(f"sqlite:///{self.folder / 'jobs.db'}")

    def come_back(self) -> None:
        self.folder.mkdir()
        migrate(self.engine)


async def redo_jobs(engine: Engine, broker: LateBroker, clock: Any) -> None:
    await asyncio.to_thread(processes._redo, engine, broker.client, RedoSettings(), "redo", lambda: None, clock)
    engine.dispose()


async def redo_without_database(rig: Rig) -> None:
    database, broker = LateDatabase(rig.directory), LateBroker()
    broker.come_back()
    await redo_jobs(database.engine, broker, Clock(rig, database.come_back))


async def redo_without_broker(rig: Rig) -> None:
    database, broker = LateDatabase(rig.directory), LateBroker()
    database.come_back()
    await redo_jobs(database.engine, broker, Clock(rig, broker.come_back))


async def serve_without_database(rig: Rig) -> None:
    database, loop = LateDatabase(rig.directory), asyncio.get_running_loop()

    def at_once(_: object, work: Callable[[], Any]) -> asyncio.Future[Any]:
        done = loop.create_future()
        try:
            done.set_result(work())
        except Exception as error:  # noqa: BLE001 - it belongs to the one that waits
            done.set_exception(error)
        return done

    rig.patch.setattr(loop, "run_in_executor", at_once)
    runner = web.AppRunner(app.create_app(database.engine, token=None))
    await runner.setup()
    loop.call_later(AWAY_SECONDS, database.come_back)
    await asyncio.sleep(AWAY_SECONDS + AFTER_SECONDS)
    await runner.cleanup()
    database.engine.dispose()


async def serve_without_broker(rig: Rig) -> None:
    broker = LateBroker()
    caster = processes.LateCaster(broker.client)
    caster._stop = Clock(rig, broker.come_back)  # type: ignore[assignment]
    with caster:
        await asyncio.to_thread(caster._thread.join)


async def work_without_database(rig: Rig) -> None:
    there: list[bool] = []
    clock = Clock(rig, lambda: there.append(True))

    def look(engine: Engine) -> None:
        if not there:
            check_tables(engine)

    environment = WorkerEnvironment("w", "42", "core", "core-req-42", "core-activity", f"amqp://{PLACE}/v")
    served: list[object] = []
    rig.patch.setattr(worker, "check_tables", look)
    rig.patch.setattr(worker, "environment", lambda: environment)
    rig.patch.setattr(worker, "run", lambda handler, **_: served.append(handler))
    await asyncio.to_thread(JobWorker(DATABASE, {JobType("routes"): print}).run)
    assert served, clock.now


PROGRAMS = {
    "osrdyne jobs redo": WaitingProgram(redo_without_database, {"the database"}, "later/jobs.db"),
    "osrdyne jobs redo without a broker": WaitingProgram(redo_without_broker, {"the broker"}),
    "osrdyne jobs serve": WaitingProgram(serve_without_database, {"the database"}, "later/jobs.db"),
    "osrdyne jobs serve without a broker": WaitingProgram(serve_without_broker, {"the broker"}),
    "osrdyne_jobs.JobWorker": WaitingProgram(work_without_database, {"the database"}),
}
