"""The programs of the simulated processes: clients, workers, redo, and a person who cancels and redoes jobs.

Client, worker and redo are the product's classes. Like `osrdyne_worker.run`, this runs a worker in threads that take a
request each, and stops it at SIGTERM.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy import Engine, text
from sqlalchemy.exc import SQLAlchemyError

from osrdyne_jobs import JobClient, JobWorker, NoAnswer, NotRegistered, Redo, RedoSettings, UnknownJob, WrongState
from osrdyne_jobs.store import administration
from osrdyne_worker import Request, Requeue
from simulation.jobs.scenario import LOAD_SECONDS, TYPES, HandlerAction, Plan
from simulation.jobs.scheduler import Process
from simulation.jobs.threads import Event
from simulation.jobs.watch import LEASE_SECONDS

if TYPE_CHECKING:
    from simulation.jobs.world import World

#: Seconds for which a worker that got SIGTERM may go on.
GRACE_SECONDS = 20.0
_NOTE = text("INSERT INTO simulated_note (number) VALUES (:number)")


@dataclass(slots=True)
class Ledger:
    """Which jobs clients registered, and which of them a person asked to cancel or redo."""

    #: Number of a plan -> the ids that `submit` returned.
    registered: dict[int, list[int]] = field(default_factory=dict)
    #: Ids that a person asked to cancel.
    cancel_asked: set[int] = field(default_factory=set)
    #: Of these, the ids whose cancellation the database has confirmed.
    cancel_taken: set[int] = field(default_factory=set)
    #: Ids that a person asked to redo.
    redo_asked: set[int] = field(default_factory=set)
    #: Clients that have nothing more to submit.
    clients_done: int = 0


def start_client(world: World, number: int) -> None:
    """Start a client. After a kill it is started again, and goes on with the next job."""
    left = [plan for plan in world.scenario.jobs if plan.client == number]

    def start() -> None:
        process = world.scheduler.process(f"client-{number}")
        process.at_end.append(lambda: world.scheduler.after(world.scheduler.random.uniform(0.5, 5), start))
        world.scheduler.thread(process, "main", lambda: _submit_all(world, process, left))

    start()


def _submit_all(world: World, process: Process, left: list[Plan]) -> None:
    engine = world.database.engine(process)
    client = JobClient(engine, TYPES, world.pool)
    while left:
        wait = world.begin + left[0].at - world.scheduler.now
        if wait > 0:
            world.scheduler.sleep(wait)
        plan = left.pop(0)
        while not _submit(world, engine, client, plan):
            world.scheduler.sleep(world.scheduler.random.uniform(1, 5))
    world.ledger.clients_done += 1
    process.mortal = False


def _submit(world: World, engine: Engine, client: JobClient, plan: Plan) -> bool:
    """Submit a job. Return whether the database is known to have it."""
    payload = {"number": plan.number}
    try:
        if plan.outbox:
            with engine.begin() as connection:
                job = client.register(connection, plan.type, plan.resource, payload)
                connection.execute(_NOTE, payload)
            client.cast(job)
        else:
            job = client.submit(plan.type, plan.resource, payload)
    except NotRegistered:
        return False
    except SQLAlchemyError as error:
        # The client's own transaction failed. If its note exists already, an earlier try was committed.
        return "UNIQUE" in str(error)
    world.scheduler.note(f"job {job.id} of {job.type} {job.resource} is registered: {plan.do.value}")
    world.ledger.registered.setdefault(plan.number, []).append(job.id)
    return True


def start_redo(world: World, number: int, incarnation: int = 1) -> None:
    """Start a redo process. After a kill it is started again, under another name."""
    process = world.scheduler.process(f"redo-{number}")
    name = f"redo-{number}.{incarnation}"

    def again() -> None:
        world.scheduler.after(world.scheduler.random.uniform(1, 30), lambda: start_redo(world, number, incarnation + 1))

    def main() -> None:
        Redo(world.database.engine(process), world.pool, world.redo_settings, name=name).run(Event(world.scheduler))  # type: ignore[arg-type]

    process.at_end.append(again)
    world.scheduler.thread(process, "main", main)


def redo_settings(batch: int, most: int) -> RedoSettings:
    """Return settings of redo that fit a run of some minutes."""
    return RedoSettings(
        interval=8.0,
        batch=batch,
        most=most,
        pause=20.0,
        lease=20.0,
        alive_interval=20.0,
        patience=LEASE_SECONDS,
        archive_after=40.0,
    )


def start_worker(world: World, key: str, number: int) -> Process:
    """Start a worker of a resource."""
    process = world.scheduler.process(f"worker-{number}")
    stop = Event(world.scheduler)
    world.stops[process] = stop

    def main() -> None:
        worker = JobWorker(
            world.database.engine(process),
            dict.fromkeys(TYPES, world.handlers.handle),
            lease=LEASE_SECONDS,
            threads=world.scenario.threads,
            name=process.name,
            held=world.scenario.held,
        )
        for consumer in range(world.scenario.threads):
            world.scheduler.thread(process, f"consumer {consumer}", lambda: _consume(world, worker, key, process))
        stop.wait()
        world.scheduler.note("gets SIGTERM")
        world.pool.stop(key, process)
        world.scheduler.after(GRACE_SECONDS, lambda: world.scheduler.kill(process))
        worker.close()
        world.scheduler.die()

    world.scheduler.thread(process, "main", main)
    return process


def _consume(world: World, worker: JobWorker, key: str, process: Process) -> None:
    while (message := world.pool.take(key, process)) is not None:
        world.scheduler.step("delivery")
        settle = world.pool.settle
        try:
            worker.handle(Request(key, message.body, {}, None, message.deliveries > 1, None))
        except Requeue:
            settle = world.pool.requeue
        world.scheduler.step("acknowledgement")
        settle(key, process, message)


def start_person(world: World) -> None:
    """Start the person who cancels and redoes jobs. No fault hits a person."""
    process = world.scheduler.process("person", mortal=False)
    for plan in world.scenario.jobs:
        if plan.cancel_after is not None:
            world.scheduler.thread(process, "cancels", partial(_cancel, world, plan))
    world.scheduler.thread(process, "redoes", lambda: _redo_parked(world))


def _cancel(world: World, plan: Plan) -> None:
    """Cancel the jobs of a plan: once, or until they end if they never end otherwise."""
    assert plan.cancel_after is not None
    client = JobClient(world.database.engine(world.scheduler.me().process), TYPES)
    world.scheduler.sleep(plan.at + plan.cancel_after)
    while True:
        for number in world.watch.ids_of(plan.number):
            if number not in world.ledger.cancel_taken:
                _cancel_job(world, client, number)
        if plan.do is not HandlerAction.UNTIL_CANCELLED:
            return
        world.scheduler.sleep(10)


def _cancel_job(world: World, client: JobClient, number: int) -> None:
    world.ledger.cancel_asked.add(number)
    try:
        ended = client.cancel(number)
    except (WrongState, UnknownJob, NoAnswer):
        return
    world.scheduler.note(f"job {number} is cancelled{'' if ended else ' while it runs'}")
    world.ledger.cancel_taken.add(number)


def _redo_parked(world: World) -> None:
    """Redo, once, the parked jobs whose plan says so."""
    engine = world.database.engine(world.scheduler.me().process)
    while world.scheduler.now < world.begin + LOAD_SECONDS:
        world.scheduler.sleep(7)
        for number in world.watch.parked():
            plan = world.handlers.plans[world.watch.number_of[number]]
            if not plan.redone or number in world.ledger.redo_asked:
                continue
            world.ledger.redo_asked.add(number)
            world.handlers.mended.add(plan.number)
            try:
                with engine.begin() as connection:
                    administration.redo(connection, number)
            except (WrongState, SQLAlchemyError):
                continue
            world.scheduler.note(f"job {number} is redone")


def stop_a_worker(world: World) -> None:
    """Send one of the workers SIGTERM."""
    alive = [stop for process, stop in world.stops.items() if process.alive]
    if alive:
        world.scheduler.random.choice(alive).set()


def pause_a_worker(world: World, seconds: float) -> None:
    """Pause a worker that has a run."""
    names = {lock.worker.rpartition(" ")[0] for lock in world.watch.latest.locks.values()}
    busy = [process for process in world.stops if process.alive and process.name in names]
    if busy:
        world.scheduler.pause(world.scheduler.random.choice(busy), seconds)
