"""One run: everything put together, until all jobs have ended or never will."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from unittest import mock

from osrdyne_jobs import RedoSettings, client, worker
from simulation.jobs import programs
from simulation.jobs.broker import Pool
from simulation.jobs.database import Database, database
from simulation.jobs.handlers import Handlers
from simulation.jobs.programs import Ledger
from simulation.jobs.scenario import LOAD_SECONDS, REST_SECONDS, Scenario
from simulation.jobs.scheduler import Process, Scheduler
from simulation.jobs.threads import Event, in_virtual_time
from simulation.jobs.watch import Watch

#: Virtual seconds since the Unix epoch at which a run begins.
BEGIN = 1.8e9
#: Seconds between two looks of the pool for groups that are not used.
_UNUSED_EVERY_SECONDS = 10.0
#: Seconds after an outage for which leases may still run out because of it: workers wait up to that long.
_AFTERMATH_SECONDS = 10.0


@dataclass(slots=True)
class World:
    """What the programs of a run know."""

    scenario: Scenario
    scheduler: Scheduler
    database: Database
    pool: Pool
    handlers: Handlers
    watch: Watch
    redo_settings: RedoSettings
    ledger: Ledger = field(default_factory=Ledger)
    begin: float = BEGIN
    #: Set to stop a worker.
    stops: dict[Process, Event] = field(default_factory=dict)
    workers: int = 0
    #: When the last job is registered or cancelled.
    last_order: float = field(init=False)

    def __post_init__(self) -> None:
        self.last_order = BEGIN + max((job.cancel_after or 0) + job.at for job in self.scenario.jobs)


@dataclass(slots=True)
class Outcome:
    """What is judged."""

    scenario: Scenario
    watch: Watch
    ledger: Ledger
    handlers: Handlers
    trace: list[str]
    #: What threads raised.
    errors: list[str]
    #: Runs of each job as the table of attempts has them, and the numbers of notes.
    attempts: dict[int, list[int]]
    notes: set[int]
    #: Virtual seconds until all had ended.
    seconds: float


def simulate(scenario: Scenario) -> Outcome:
    """Run a scenario to its end."""
    logging.disable(logging.CRITICAL)
    random.seed(f"chance of the product {scenario.seed}")
    scheduler = Scheduler(scenario.seed, begin=BEGIN, dangers=scenario.dangers, safe_after=BEGIN + LOAD_SECONDS)
    try:
        away = _within(scheduler, scenario.database_away)
        with _product_in(scheduler), database(scheduler, away=away, cut=_at_times(scheduler, scenario)) as made:
            return _run(scenario, scheduler, made)
    finally:
        logging.disable(logging.NOTSET)


@contextmanager
def _product_in(scheduler: Scheduler) -> Iterator[None]:
    """Let the product wait by a scheduler, and not compare the tables with its migrations for each process."""
    tables_of_worker = mock.patch.object(worker, "check_tables")
    tables_of_client = mock.patch.object(client, "check_tables")
    with in_virtual_time(scheduler), tables_of_worker, tables_of_client:
        yield


def _within(scheduler: Scheduler, windows: tuple[tuple[float, float], ...]) -> Callable[[], bool]:
    return lambda: any(begin <= scheduler.now - BEGIN < end for begin, end in windows)


def _at_times(scheduler: Scheduler, scenario: Scenario) -> Callable[[], bool]:
    chance = scheduler.random
    return lambda: (
        scenario.commits_cut > 0 and scheduler.now < BEGIN + LOAD_SECONDS and chance.random() < scenario.commits_cut
    )


def _run(scenario: Scenario, scheduler: Scheduler, made: Database) -> Outcome:
    world: World
    watch = Watch.over(scheduler, made.file)
    made.on_commit = watch.committed
    made.on_cut = watch.cut
    watch.troubles += [(BEGIN + begin, BEGIN + end + _AFTERMATH_SECONDS, None) for begin, end in scenario.database_away]

    def start(key: str) -> Process:
        world.workers += 1
        process = programs.start_worker(world, key, world.workers)
        process.at_end.append(lambda: watch.gone(process))
        return process

    pool = Pool(
        scheduler,
        scenario.casts,
        size=scenario.workers,
        away=_within(scheduler, scenario.broker_away),
        faulty=lambda: scheduler.now < BEGIN + LOAD_SECONDS,
        start=start,
    )

    def paused(process: Process, until: float) -> None:
        watch.paused(process, until)
        pool.paused(process, until)

    scheduler.on_pause = paused
    world = World(
        scenario=scenario,
        scheduler=scheduler,
        database=made,
        pool=pool,
        handlers=Handlers(scheduler, {plan.number: plan for plan in scenario.jobs}, watch.is_over),
        watch=watch,
        redo_settings=programs.redo_settings(scenario.batch, scenario.most),
    )
    try:
        _start_all(world)
        scheduler.run(lambda: _over(world), BEGIN + LOAD_SECONDS + REST_SECONDS)
        return _outcome(world)
    finally:
        scheduler.end()
        watch.reader.close()


def _start_all(world: World) -> None:
    for number in range(2):
        programs.start_client(world, number)
    for number in range(world.scenario.redos):
        programs.start_redo(world, number)
    programs.start_person(world)
    for moment in world.scenario.stops:
        world.scheduler.at(BEGIN + moment, partial(programs.stop_a_worker, world))
    for moment, seconds in world.scenario.naps:
        world.scheduler.at(BEGIN + moment, partial(programs.pause_a_worker, world, seconds))

    def stop_unused() -> None:
        for _, process in world.pool.unused():
            world.stops[process].set()
        world.scheduler.after(_UNUSED_EVERY_SECONDS, stop_unused)

    stop_unused()


def _over(world: World) -> bool:
    quiet = world.scheduler.now > world.last_order and world.ledger.clients_done == 2
    late = world.scheduler.now > BEGIN + LOAD_SECONDS or not world.watch.parked()  # a person may redo them until then
    return quiet and late and world.watch.settled()


def _outcome(world: World) -> Outcome:
    watch = world.watch
    return Outcome(
        scenario=world.scenario,
        watch=watch,
        ledger=world.ledger,
        handlers=world.handlers,
        trace=world.scheduler.trace,
        errors=world.scheduler.errors,
        attempts=watch.reader.attempts(),
        notes=watch.reader.notes(),
        seconds=world.scheduler.now - BEGIN,
    )
