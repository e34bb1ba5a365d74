"""Blocking code in virtual time: threads wait, die and stand still, and SQLite is the real one."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError

from simulation.jobs.database import Database, database
from simulation.jobs.scheduler import Dangers, Scheduler
from simulation.jobs.threads import Event, Executor, Semaphore, wait_for

LONG = 10_000.0
NOTE = text("INSERT INTO simulated_note (number) VALUES (:number)")


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    made = Scheduler(1, begin=0.0, dangers=Dangers(), safe_after=0.0)
    yield made
    made.end()


def run(scheduler: Scheduler, *targets: Callable[[], object]) -> None:
    """Run each target in a process of its own, until nothing is left to do."""
    for number, target in enumerate(targets):
        scheduler.thread(scheduler.process(f"p{number}"), "main", target)
    scheduler.run(lambda: False, LONG)


def in_turn(*calls: Callable[[], object]) -> Callable[[], None]:
    """Return what calls these one after the other."""

    def call_all() -> None:
        for call in calls:
            call()

    return call_all


@contextmanager
def numbers(made: Database) -> Iterator[Callable[[], list[int]]]:
    connection = sqlite3.connect(made.file)
    yield lambda: [row[0] for row in connection.execute("SELECT number FROM simulated_note ORDER BY number")]
    connection.close()


def test_a_sleep_takes_its_virtual_time(scheduler: Scheduler) -> None:
    woke: list[float] = []
    run(scheduler, in_turn(lambda: scheduler.sleep(3600), lambda: woke.append(scheduler.now)))
    assert 3600 <= woke[0] < 3601


def test_a_wait_ends_when_its_event_is_set_or_its_time_is_over(scheduler: Scheduler) -> None:
    event = Event(scheduler)
    said: list[tuple[str, bool, bool]] = []
    run(
        scheduler,
        lambda: said.append(("short", event.wait(5), scheduler.now < 6)),
        lambda: said.append(("long", event.wait(500), 10 <= scheduler.now < 11)),
        in_turn(lambda: scheduler.sleep(10), event.set),
    )
    assert said == [("short", False, True), ("long", True, True)]


def test_an_executor_runs_no_more_at_once_than_it_has_threads(scheduler: Scheduler) -> None:
    within: list[int] = []
    most: list[int] = []

    def work(number: int) -> int:
        within.append(number)
        most.append(len(within))
        scheduler.sleep(10)
        within.remove(number)
        return number

    def main() -> None:
        executor = Executor(scheduler, 2, "work")
        futures = [executor.submit(work, number) for number in range(5)]
        wait_for(scheduler, futures, None)
        most.append(-sum(future.result() for future in futures))
        executor.shutdown(wait=True)
        with pytest.raises(RuntimeError):
            executor.submit(work, 9)

    run(scheduler, main)
    assert (max(most), most[-1], scheduler.errors) == (2, -10, [])


def test_a_semaphore_that_is_released_goes_to_one_that_lives(scheduler: Scheduler) -> None:
    semaphore = Semaphore(scheduler, 0)
    got: list[str] = []

    def take(name: str) -> None:
        semaphore.acquire()
        got.append(name)

    first, second = scheduler.process("first"), scheduler.process("second")
    for process in (first, second):
        scheduler.thread(process, "main", partial(take, process.name))
    scheduler.at(10, semaphore.release)
    scheduler.at(10, lambda: scheduler.kill(first))
    scheduler.run(lambda: False, LONG)
    assert got == ["second"]


def test_nothing_of_a_process_goes_on_once_it_is_killed_whatever_it_catches(scheduler: Scheduler) -> None:
    said: list[str] = []

    def stubborn() -> None:
        try:
            scheduler.sleep(100)
        except BaseException:  # noqa: BLE001 - as a worker does around a handler
            said.append("caught")
        scheduler.sleep(1)
        said.append("went on")

    process = scheduler.process("p")
    scheduler.thread(process, "main", stubborn)
    scheduler.at(10, lambda: scheduler.kill(process))
    scheduler.run(lambda: False, LONG)
    assert said == ["caught"]


def test_a_process_that_stands_still_goes_on_afterwards(scheduler: Scheduler) -> None:
    woke: list[float] = []
    process = scheduler.process("p")
    scheduler.thread(process, "main", in_turn(lambda: scheduler.sleep(20), lambda: woke.append(scheduler.now)))
    scheduler.at(10, lambda: scheduler.pause(process, 90))
    scheduler.run(lambda: False, LONG)
    assert 100 <= woke[0] < 101


def writing(scheduler: Scheduler, engine: Callable[[], Engine], number: int, held: float) -> Callable[[], None]:
    """Return what writes a number, and keeps its transaction open for a time."""

    def write() -> None:
        with engine().begin() as connection:
            connection.execute(NOTE, {"number": number})
            scheduler.sleep(held)

    return write


def test_the_transaction_of_a_killed_process_is_rolled_back_and_holds_up_no_other(scheduler: Scheduler) -> None:
    written: list[float] = []
    with database(scheduler, away=lambda: False) as made, numbers(made) as read:
        first, second = scheduler.process("first"), scheduler.process("second")
        write = writing(scheduler, lambda: made.engine(second), 2, 0)
        scheduler.thread(first, "main", writing(scheduler, lambda: made.engine(first), 1, 100))
        timed = in_turn(write, lambda: written.append(scheduler.now))
        scheduler.at(2, lambda: scheduler.thread(second, "main", timed))
        scheduler.at(5, lambda: scheduler.kill(first))
        scheduler.run(lambda: False, LONG)
        scheduler.end()
        assert (read(), scheduler.errors) == ([2], [])
        assert 5 <= written[0] < 10


def test_a_second_transaction_waits_for_the_first_and_gives_up_as_sqlite_does(scheduler: Scheduler) -> None:
    with database(scheduler, away=lambda: False) as made, numbers(made) as read:
        for number, held in enumerate((20.0, 40.0, 0.0, 0.0)):
            process = scheduler.process(f"p{number}")
            write = writing(scheduler, partial(made.engine, process), number, held)
            scheduler.at(number * 1.0, partial(scheduler.thread, process, "main", write))
        scheduler.run(lambda: False, LONG)
        scheduler.end()
        assert read() == [0, 1]
        assert [("database is locked" in error) for error in scheduler.errors] == [True, True]


@pytest.mark.parametrize("seed", range(4))
def test_a_commit_whose_connection_breaks_is_there_or_not_and_its_process_cannot_know(seed: int) -> None:
    scheduler = Scheduler(seed, begin=0.0, dangers=Dangers(), safe_after=0.0)
    seen: list[list[int]] = []
    with database(scheduler, away=lambda: False, cut=lambda: True) as made, numbers(made) as read:
        process = scheduler.process("p")

        def write() -> None:
            with pytest.raises(OperationalError, match="the connection broke"):
                writing(scheduler, lambda: made.engine(process), 7, 0)()
            seen.append(read())

        scheduler.thread(process, "main", write)
        scheduler.run(lambda: False, LONG)
        scheduler.end()
    assert scheduler.errors == []
    assert seen in ([[]], [[7]])


def test_the_clock_of_the_database_is_the_virtual_one(scheduler: Scheduler) -> None:
    said: list[float] = []
    with database(scheduler, away=lambda: False) as made:
        process = scheduler.process("p")

        def ask() -> None:
            scheduler.sleep(1000)
            with made.engine(process).begin() as connection:
                said.append(connection.execute(text("SELECT osrdyne_now()")).scalar_one() - scheduler.now)

        scheduler.thread(process, "main", ask)
        scheduler.run(lambda: False, LONG)
        scheduler.end()
    assert said == [0.0]
