"""Writers of one SQLite file wait for their turns, whatever becomes of the one whose turn it is."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from osrdyne_jobs.database.engines import async_engine_for, engine_for, reading
from osrdyne_jobs.database.sqlite_queue import SUFFIX, WRITE_AHEAD_LOG, PlaceInQueue, QueuedConnection
from testbed.waiting import PATIENCE_SECONDS, until

#: Waits for the turn at a file, says so, and keeps it until its standard input ends.
HOLDER = """
import sys
from osrdyne_jobs.database.sqlite_queue import PlaceInQueue
with PlaceInQueue(sys.argv[1]).turn(60.0):
    print("mine", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holder(file: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the turn."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(file)], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "mine\n"
        yield process
        process.kill()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = engine_for(f"sqlite:///{tmp_path / 'jobs.sqlite'}")
    with made.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE written (by TEXT)")
    yield made
    made.dispose()


def write(engine: Engine, name: str) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("INSERT INTO written VALUES (?)", (name,))


def written(engine: Engine) -> list[str]:
    with reading(engine) as connection:
        return list(connection.exec_driver_sql("SELECT by FROM written ORDER BY rowid").scalars())


def waiting() -> int:
    return sum(thread.name == "osrdyne jobs: queue" for thread in threading.enumerate())


def until_waiting(number: int = 1) -> None:
    until(lambda: waiting() >= number, what=f"{number} writers that wait")


def test_of_many_writers_one_waits_for_sqlite_and_all_others_for_their_turn(engine: Engine) -> None:
    names = {f"writer-{number}" for number in range(8)}
    with ThreadPoolExecutor(len(names)) as threads:
        with engine.begin():
            for name in names:
                threads.submit(write, engine, name)
            until_waiting(len(names) - 1)
        until(lambda: len(written(engine)) == len(names), what="all that was to be written")
    assert set(written(engine)) == names


def test_a_writer_goes_on_when_the_process_whose_turn_it_was_is_killed(engine: Engine, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as threads, holder(tmp_path / f"jobs.sqlite{SUFFIX}") as process:
        done = threads.submit(write, engine, "after")
        until_waiting()
        assert written(engine) == []
        process.kill()
        done.result()
    assert written(engine) == ["after"]


def test_a_writer_does_not_wait_for_ever_for_a_process_that_stands_still(tmp_path: Path) -> None:
    file = tmp_path / "queue"
    with holder(file) as process:
        os.kill(process.pid, signal.SIGSTOP)
        queue = PlaceInQueue(str(file))
        with queue.turn(0.05):
            assert waiting() == 1
        process.kill()
        until(lambda: not waiting(), what="the end of the thread that waited")
    with queue.turn(0.0):
        assert waiting() == 0
    queue.close()


def test_readers_do_not_wait_for_a_turn(engine: Engine, tmp_path: Path) -> None:
    with holder(tmp_path / f"jobs.sqlite{SUFFIX}"):
        assert written(engine) == []


async def test_writers_of_asyncio_wait_in_the_same_queue(engine: Engine, tmp_path: Path) -> None:
    asynchronous = async_engine_for(str(engine.url))
    with ThreadPoolExecutor(1) as threads, holder(tmp_path / f"jobs.sqlite{SUFFIX}") as process:

        def free() -> None:
            until_waiting()
            process.kill()

        freed = threads.submit(free)
        async with asynchronous.begin() as connection:
            await connection.exec_driver_sql("INSERT INTO written VALUES ('asyncio')")
        freed.result()
    await asynchronous.dispose()
    assert written(engine) == ["asyncio"]


def test_where_the_queue_cannot_be_kept_writers_wait_for_sqlite_itself(engine: Engine, tmp_path: Path) -> None:
    file = tmp_path / f"jobs.sqlite{SUFFIX}"
    file.unlink()
    file.mkdir()
    write(engine, "all the same")
    assert written(engine) == ["all the same"]


def test_a_program_that_is_not_in_the_queue_is_waited_for_too(engine: Engine, tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "jobs.sqlite", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    with ThreadPoolExecutor(2) as threads:
        done = [threads.submit(write, engine, "after") for _ in range(2)]
        until_waiting()  # the second one in the queue, and so the first one for SQLite
        other.execute("INSERT INTO written VALUES ('before')")
        other.execute("COMMIT")
        other.close()
    assert [future.result() for future in done] == [None, None]
    assert written(engine) == ["before", "after", "after"]


def test_a_writer_that_waits_too_long_is_refused_as_sqlite_does_it(engine: Engine, tmp_path: Path) -> None:
    impatient = sqlite3.connect(tmp_path / "jobs.sqlite", factory=QueuedConnection, timeout=0.05, isolation_level=None)
    with engine.begin(), pytest.raises(sqlite3.OperationalError, match="locked"):
        impatient.execute("BEGIN IMMEDIATE")
    impatient.execute("BEGIN IMMEDIATE")
    impatient.close()


def test_a_statement_that_is_not_in_the_queue_waits_for_a_writer_too(engine: Engine, tmp_path: Path) -> None:
    waits = threading.Event()

    class WatchedConnection(QueuedConnection):
        def __getattribute__(self, name: str) -> object:
            if name == "patience":
                waits.set()
            return super().__getattribute__(name)

    def insert() -> None:
        own = sqlite3.connect(tmp_path / "jobs.sqlite", factory=WatchedConnection, timeout=60.0, isolation_level=None)
        waits.clear()
        own.execute("INSERT INTO written VALUES ('after')")
        own.close()

    with ThreadPoolExecutor(1) as threads:
        with engine.begin() as connection:
            done = threads.submit(insert)
            assert waits.wait(PATIENCE_SECONDS)
            connection.exec_driver_sql("INSERT INTO written VALUES ('before')")
        done.result()
    assert written(engine) == ["before", "after"]


def test_a_transaction_that_read_what_another_one_changed_is_refused_at_once(engine: Engine, tmp_path: Path) -> None:
    own = sqlite3.connect(tmp_path / "jobs.sqlite", factory=QueuedConnection, timeout=600.0, isolation_level=None)
    own.execute("BEGIN")
    assert own.execute("SELECT count(*) FROM written").fetchone() == (0,)
    write(engine, "another")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        own.execute("INSERT INTO written VALUES ('too late')")
    own.close()


def test_a_database_in_memory_has_no_queue() -> None:
    connection = sqlite3.connect(":memory:", factory=QueuedConnection)
    assert connection.queue is None
    connection.close()


def test_a_new_file_that_another_program_writes_to_is_opened_when_that_program_has_ended(tmp_path: Path) -> None:
    # Given a file without a log beside it, to which another program writes
    file = tmp_path / "new.sqlite"
    other = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    other.execute("CREATE TABLE t (a INTEGER)")
    other.execute("BEGIN IMMEDIATE")
    engine = engine_for(f"sqlite:///{file}")
    tries: list[str] = []

    @event.listens_for(engine, "connect", insert=True)
    def connects(connection: QueuedConnection, _: object) -> None:
        connection.set_trace_callback(tries.append)

    # When it is opened, and the other one ends after it was refused
    with ThreadPoolExecutor(1) as thread:
        mode = thread.submit(_journal_mode, engine)
        until(lambda: mode.done() or tries.count(WRITE_AHEAD_LOG) > 1, what="a second try")
        other.execute("COMMIT")
        # I expect that it waited
        assert mode.result(PATIENCE_SECONDS) == "wal"
    other.close()
    engine.dispose()


def _journal_mode(engine: Engine) -> str:
    with reading(engine) as connection:
        return str(connection.exec_driver_sql("PRAGMA journal_mode").scalar())
