"""Every change of a job, on both databases.

The database's clock cannot be set. A time that has passed is made by a lease of 0 seconds, or by a cast that is due
before its registration.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from sqlalchemy import Connection, Engine, Table, event, func, select, text, update

from osrdyne_jobs import states
from osrdyne_jobs.database import postgresql
from osrdyne_jobs.database.engines import async_engine_for, check_tables, engine_for, migrate, reading
from osrdyne_jobs.database.tables import attempt, job, job_history, lock, run
from osrdyne_jobs.errors import LeaseLost, NoSchema, UnknownJob, WrongState
from osrdyne_jobs.store import administration, history, outcomes, records, registration, running, scans
from testbed.postgres import Postgres
from testbed.waiting import PATIENCE_SECONDS, until

T = TypeVar("T")
#: Longer than any test.
LONG = 3600.0
#: How many connections of this database wait for a lock.
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


class Store:
    """The functions of the store, each in a transaction of its own."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def do(self, action: Callable[[Connection], T]) -> T:
        with self.engine.begin() as connection:
            return action(connection)

    def register(self, resource: str = "r", *, coalesce: bool = False, due: float = LONG, attempts: int = 3) -> int:
        return self.do(
            lambda connection: registration.register(
                connection,
                type="t",
                resource=resource,
                payload='{"n": 1}',
                coalesce=coalesce,
                max_attempts=attempts,
                cast_after=due,
            )
        )

    def begin(self, resource: str = "r", *, worker: str = "w", lease: float = LONG) -> records.StartedRun | None:
        return self.do(lambda c: running.begin(c, type="t", resource=resource, worker=worker, lease=lease))

    def begun(self, resource: str = "r", *, worker: str = "w", lease: float = LONG) -> records.StartedRun:
        found = self.begin(resource, worker=worker, lease=lease)
        assert found is not None
        return found

    def finish(self, run: records.StartedRun, outcome: str = states.DONE, *why: str) -> None:
        """End a run, with its reason and traceback."""
        self.do(lambda c: running.finish(c, run.run_lock, outcome, *why))

    def go_on(self, run: records.StartedRun, outcome: str = states.DONE) -> records.StartedRun | None:
        return self.do(
            lambda c: running.go_on(c, run.run_lock, outcome, "because", type="t", resource="r", worker="w", lease=LONG)
        )

    def state(self, number: int) -> str:
        return self.get(number).state

    def get(self, number: int) -> records.Job:
        return self.do(lambda c: administration.get(c, number))

    def attempts(self, number: int) -> list[Any]:
        return [attempt["outcome"] for attempt in self.do(lambda c: administration.attempts(c, number))]

    def cast_due(self, most: int = 100, pause: float = LONG) -> tuple[int, list[str]]:
        due, hints = self.do(lambda c: scans.cast_due(c, most=most, pause=pause))
        return due, [hint.resource for hint in hints]

    def rows(self, table: Table) -> int:
        return self.do(lambda c: c.execute(select(func.count()).select_from(table)).scalar_one())

    def overdue(self, *numbers: int) -> None:
        """Make failed jobs due now: their pause is over."""
        self.do(lambda c: c.execute(update(job).where(job.c.id.in_(numbers)).values(begin_after=0, due_at=0)))


@pytest.fixture
def jobs(database_url: str) -> Iterator[Store]:
    engine = engine_for(database_url)
    migrate(engine)
    yield Store(engine)
    engine.dispose()


def test_the_tables_are_made_once_and_asked_for_where_they_are_missing(database_url: str) -> None:
    engine = engine_for(database_url)
    with pytest.raises(NoSchema, match="migrate"):
        check_tables(engine)
    migrate(engine)
    migrate(engine)
    check_tables(engine)
    engine.dispose()


def test_migrations_that_begin_at_once_all_succeed(database_url: str) -> None:
    engines = [engine_for(database_url) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(migrate, engines))
    check_tables(engines[0])
    for engine in engines:
        engine.dispose()


def test_a_job_runs_once_and_is_done(jobs: Store) -> None:
    number = jobs.register()
    begun = jobs.begun()
    assert (begun.job, begun.payload, begun.jobs, begun.attempts) == (number, '{"n": 1}', 1, 1)
    assert jobs.state(number) == states.RUNNING
    jobs.finish(begun)
    found = jobs.get(number)
    assert (found.state, found.attempts, found.reason) == (states.DONE, 1, None)
    assert found.finished_at is not None
    assert found.registered_at <= found.finished_at
    assert jobs.begin() is None


def test_jobs_of_one_resource_run_one_after_the_other_in_the_order_of_their_registration(jobs: Store) -> None:
    numbers = [jobs.register() for _ in range(3)]
    done = []
    for _ in numbers:
        begun = jobs.begun()
        assert jobs.begin(worker="other") is None
        done.append(begun.job)
        jobs.finish(begun)
    assert done == numbers


def test_the_end_of_a_run_and_the_begin_of_the_next_one_are_one_transaction(jobs: Store) -> None:
    first, second = jobs.register(), jobs.register()
    one = jobs.begun()
    two = jobs.go_on(one)
    assert two is not None
    assert (two.job, two.attempts) == (second, 1)
    assert two.token > one.token
    assert [jobs.state(number) for number in (first, second)] == [states.DONE, states.RUNNING]
    assert jobs.begin() is None
    assert jobs.go_on(two) is None
    assert jobs.rows(lock) == 0
    assert jobs.rows(run) == 2


def test_a_run_that_lost_its_lease_does_not_begin_the_next_one(jobs: Store) -> None:
    first, second = jobs.register(), jobs.register()
    one = jobs.begun(lease=0.0)
    other = jobs.begun(worker="other")
    with pytest.raises(LeaseLost):
        jobs.go_on(one)
    assert other.job == first
    assert jobs.attempts(first) == [states.LOST, None]
    assert jobs.state(second) == states.REGISTERED


def test_a_run_that_failed_goes_on_with_the_next_job_and_with_its_own_after_a_pause(jobs: Store) -> None:
    first, second = jobs.register(), jobs.register()
    two = jobs.go_on(jobs.begun(), states.FAILED)
    assert two is not None
    assert two.job == second
    assert jobs.state(first) == states.FAILED
    jobs.overdue(first)
    again = jobs.go_on(two)
    assert again is not None
    assert (again.job, again.attempts) == (first, 2)


def test_a_run_that_its_worker_stopped_goes_on_with_its_own_job(jobs: Store) -> None:
    first, _ = jobs.register(), jobs.register()
    again = jobs.go_on(jobs.begun(), states.CANCELLED)
    assert again is not None
    assert (again.job, again.attempts) == (first, 2)


def test_a_run_goes_on_with_all_jobs_that_coalesce(jobs: Store) -> None:
    numbers = [jobs.register(coalesce=True)]
    one = jobs.begun()
    numbers += [jobs.register(coalesce=True) for _ in range(3)]
    two = jobs.go_on(one)
    assert two is not None
    assert (two.job, two.jobs) == (numbers[-1], 3)
    jobs.finish(two)
    assert [jobs.state(number) for number in numbers] == [states.DONE] * 4


def test_a_run_that_goes_on_waits_for_its_own_transaction(postgres: Postgres) -> None:
    name = f"test_{secrets.token_hex(6)}"
    postgres.create_database(name)
    jobs = Store(engine_for(postgres.url(name)))
    migrate(jobs.engine)
    jobs.register()
    jobs.register()
    begun = jobs.begun()
    with ThreadPoolExecutor(1) as threads:
        with jobs.engine.begin() as writing:
            running.hold(writing, begun.run_lock)
            going = threads.submit(jobs.go_on, begun)
            until(lambda: postgres.psql(WAITING, name) == "1", what="the wait for the transaction")
        assert going.result(PATIENCE_SECONDS) is not None
    jobs.engine.dispose()
    postgres.drop_database(name)


def test_a_connection_that_rested_is_tried_before_it_is_used(
    private_postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql, "PING_AFTER_SECONDS", 0.0)
    private_postgres.create_database("rests")
    engine = engine_for(private_postgres.url("rests"))
    migrate(engine)
    private_postgres.kill()
    private_postgres.start()
    check_tables(engine)
    engine.dispose()


def test_something_is_due_where_a_job_waits_without_a_run_or_a_lease_has_ended(jobs: Store) -> None:
    def is_due() -> bool:
        return jobs.do(lambda c: running.is_due(c, type="t", resource="r"))

    jobs.register("other")
    assert not is_due()
    jobs.register()
    assert is_due()
    begun = jobs.begun()
    jobs.register()
    assert not is_due()  # the run goes on with it
    jobs.finish(begun)
    assert is_due()
    jobs.begun(lease=0.0)
    assert is_due()
    jobs.finish(jobs.begun(), states.FAILED)
    assert not is_due()  # it waits for its next attempt


def test_jobs_of_different_resources_run_at_the_same_time(jobs: Store) -> None:
    jobs.register("a")
    jobs.register("b")
    assert jobs.begun("a").token != jobs.begun("b").token


def test_of_many_workers_that_begin_at_once_one_does(jobs: Store) -> None:
    for _ in range(5):
        number = jobs.register()
        with ThreadPoolExecutor(8) as threads:
            begun = [run for run in threads.map(lambda n: jobs.begin(worker=str(n)), range(8)) if run is not None]
        assert [run.job for run in begun] == [number]
        jobs.finish(begun[0])


def test_one_run_does_all_waiting_jobs_that_coalesce_and_a_second_those_that_come_meanwhile(jobs: Store) -> None:
    before = [jobs.register(coalesce=True) for _ in range(3)]
    first = jobs.begun()
    meanwhile = [jobs.register(coalesce=True) for _ in range(4)]
    assert (first.jobs, first.job) == (3, before[-1])
    jobs.finish(first)
    assert [jobs.state(job) for job in before] == [states.DONE] * 3
    second = jobs.begun()
    assert (second.jobs, second.job) == (4, meanwhile[-1])
    jobs.finish(second)
    assert jobs.begin() is None


def test_a_job_that_does_not_coalesce_keeps_its_place_among_those_that_do(jobs: Store) -> None:
    one, single, two = jobs.register(coalesce=True), jobs.register(), jobs.register(coalesce=True)
    first = jobs.begun()
    assert (first.jobs, first.job) == (2, two)
    jobs.finish(first)
    assert [jobs.state(number) for number in (one, single)] == [states.DONE, states.REGISTERED]
    assert jobs.begun().job == single


def test_a_job_that_fails_waits_for_its_next_attempt_and_lets_others_pass(jobs: Store) -> None:
    number, other = jobs.register(), jobs.register()
    jobs.finish(jobs.begun(), states.FAILED, "no fuel")
    found = jobs.get(number)
    assert (found.state, found.reason) == (states.FAILED, "no fuel")
    assert jobs.begun().job == other


def test_a_job_that_failed_often_enough_is_parked_with_the_history_of_its_attempts(jobs: Store) -> None:
    number = jobs.register(attempts=2)
    jobs.finish(jobs.begun(), states.FAILED, "first")
    assert jobs.begin() is None
    jobs.overdue(number)
    jobs.finish(jobs.begun(), states.FAILED, "second")
    jobs.overdue(number)
    assert jobs.begin() is None
    assert (jobs.state(number), jobs.get(number).reason) == (states.PARKED, "second")
    history = jobs.do(lambda c: administration.attempts(c, number))
    assert [(entry["outcome"], entry["reason"], entry["worker"]) for entry in history] == [
        ("failed", "first", "w"),
        ("failed", "second", "w"),
    ]


def test_the_next_worker_takes_over_the_job_of_a_dead_one_and_the_first_writes_nothing(jobs: Store) -> None:
    number = jobs.register()
    dead = jobs.begun(worker="dead", lease=0)
    taken = jobs.begun(worker="alive")
    assert (taken.job, taken.attempts) == (number, 2)
    assert taken.token > dead.token
    with pytest.raises(LeaseLost):
        jobs.finish(dead)
    assert jobs.state(number) == states.RUNNING
    jobs.finish(taken)
    assert jobs.attempts(number) == [states.LOST, states.DONE]


def test_a_worker_that_was_late_and_was_not_replaced_keeps_its_run(jobs: Store) -> None:
    number = jobs.register()
    late = jobs.begun(lease=0)
    assert jobs.do(lambda c: running.renew(c, [late.run_lock], LONG)) == ({late.run_lock}, set())
    assert jobs.begin(worker="other") is None
    jobs.finish(late)
    assert jobs.state(number) == states.DONE


def test_a_lease_that_was_taken_over_is_not_renewed(jobs: Store) -> None:
    jobs.register()
    dead = jobs.begun(lease=0)
    alive = jobs.begun()
    assert jobs.do(lambda c: running.renew(c, [dead.run_lock, alive.run_lock], LONG)) == ({alive.run_lock}, set())


def test_redo_ends_runs_without_a_worker_and_their_jobs_are_due_at_once(jobs: Store) -> None:
    number, last = jobs.register("a"), jobs.register("b", attempts=1)
    for resource in "ab":
        jobs.begun(resource, lease=0)
    jobs.register("c")
    jobs.begun("c")
    assert jobs.do(lambda c: scans.lose(c, 1)) == 1
    assert jobs.do(lambda c: scans.lose(c, 100)) == 1
    assert (jobs.state(number), jobs.state(last)) == (states.FAILED, states.PARKED)
    assert jobs.cast_due() == (1, ["a"])


def test_what_a_run_writes_is_fenced(jobs: Store) -> None:
    jobs.register()
    dead = jobs.begun(lease=0)
    jobs.do(lambda c: running.hold(c, dead.run_lock))
    alive = jobs.begun()
    jobs.do(lambda c: running.hold(c, alive.run_lock))
    with pytest.raises(LeaseLost):
        jobs.do(lambda c: running.hold(c, dead.run_lock))


@pytest.mark.full
def test_a_transaction_of_a_run_holds_a_successor_up_and_not_the_renewal_of_its_lease(postgres: Postgres) -> None:
    name = f"test_{secrets.token_hex(6)}"
    postgres.create_database(name)
    engine = engine_for(postgres.url(name))
    migrate(engine)
    jobs = Store(engine)
    jobs.register()
    former = jobs.begun(lease=0)
    with ThreadPoolExecutor(1) as threads:
        with engine.begin() as connection:
            running.hold(connection, former.run_lock)
            assert jobs.do(lambda c: running.renew(c, [former.run_lock], 0)) == ({former.run_lock}, set())
            assert jobs.do(lambda c: scans.lose(c, 10)) == 0
            successor = threads.submit(jobs.begun)
            with pytest.raises(TimeoutError):
                successor.result(0.5)
        assert successor.result(PATIENCE_SECONDS).token > former.token
    engine.dispose()
    postgres.drop_database(name)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["threads", "asyncio"])
async def test_a_password_that_changed_counts_at_the_next_connection(
    kind: str, postgres: Postgres, tmp_path: Path
) -> None:
    user, file = f"user_{secrets.token_hex(6)}", tmp_path / "uri"

    def change(password: str) -> None:
        postgres.psql(f"ALTER ROLE {user} PASSWORD '{password}'")
        file.write_text(postgres.url("postgres", user, password))

    postgres.psql(f"CREATE ROLE {user} LOGIN PASSWORD 'first'")
    file.write_text(postgres.url("postgres", user, "first"))
    if kind == "threads":
        engine = engine_for(file.read_text)

        async def asked() -> str:
            with engine.connect() as connection:
                return str(connection.execute(text("SELECT current_user")).scalar_one())

        async def ended() -> None:
            engine.dispose()
    else:
        asynchronous = async_engine_for(file.read_text)

        async def asked() -> str:
            async with asynchronous.connect() as connection:
                return str((await connection.execute(text("SELECT current_user"))).scalar_one())

        async def ended() -> None:
            # That of its synchronous engine would leave the connections open.
            await asynchronous.dispose()

    assert await asked() == user
    change("second")
    await ended()  # the connections that are kept
    assert await asked() == user
    await ended()
    postgres.psql(f"DROP ROLE {user}")


def test_a_waiting_job_is_cancelled_at_once_and_a_running_one_hears_of_it(jobs: Store) -> None:
    waiting, number = jobs.register("a"), jobs.register("b")
    assert jobs.do(lambda c: administration.cancel(c, waiting))
    assert jobs.state(waiting) == states.CANCELLED
    assert jobs.begin("a") is None
    begun = jobs.begun("b")
    assert not jobs.do(lambda c: administration.cancel(c, number))
    assert jobs.do(lambda c: running.renew(c, [begun.run_lock], LONG)) == ({begun.run_lock}, {begun.run_lock})
    jobs.finish(begun, states.CANCELLED)
    assert jobs.state(number) == states.CANCELLED
    with pytest.raises(WrongState, match="is cancelled"):
        jobs.do(lambda c: administration.cancel(c, number))


def test_a_run_is_cancelled_when_all_its_jobs_are(jobs: Store) -> None:
    one, two = jobs.register(coalesce=True), jobs.register(coalesce=True)
    begun = jobs.begun()
    jobs.do(lambda c: administration.cancel(c, one))
    assert jobs.do(lambda c: running.renew(c, [begun.run_lock], LONG))[1] == set()
    jobs.do(lambda c: administration.cancel(c, two))
    assert jobs.do(lambda c: running.renew(c, [begun.run_lock], LONG))[1] == {begun.run_lock}


def test_a_cancelled_job_whose_run_fails_or_is_lost_is_not_tried_again(jobs: Store) -> None:
    fails, lost = jobs.register("a"), jobs.register("b")
    failing = jobs.begun("a")
    jobs.begun("b", lease=0)
    for number in (fails, lost):
        jobs.do(partial(administration.cancel, id=number))
    jobs.finish(failing, states.FAILED)
    assert jobs.begin("b") is None
    assert [jobs.state(number) for number in (fails, lost)] == [states.CANCELLED] * 2


def test_a_job_that_was_done_before_it_heard_of_its_cancelling_is_done(jobs: Store) -> None:
    number = jobs.register()
    begun = jobs.begun()
    jobs.do(lambda c: administration.cancel(c, number))
    jobs.finish(begun)
    assert jobs.state(number) == states.DONE


def test_a_parked_job_gets_all_its_attempts_again_and_a_done_one_does_not(jobs: Store) -> None:
    number = jobs.register(attempts=1)
    jobs.finish(jobs.begun(), states.FAILED)
    assert jobs.state(number) == states.PARKED
    jobs.do(lambda c: administration.redo(c, number))
    assert jobs.cast_due() == (1, ["r"])
    jobs.finish(jobs.begun())
    with pytest.raises(WrongState, match="only a failed, parked or cancelled"):
        jobs.do(lambda c: administration.redo(c, number))
    jobs.do(lambda c: history.archive(c, after=-1, keep=LONG, most=1))
    with pytest.raises(WrongState, match="in the history: register a new one"):
        jobs.do(lambda c: administration.redo(c, number))
    with pytest.raises(UnknownJob, match="no job 99"):
        jobs.do(lambda c: administration.redo(c, 99))


def test_a_job_is_deleted_with_its_attempts_but_not_while_it_runs(jobs: Store) -> None:
    number = jobs.register()
    begun = jobs.begun()
    with pytest.raises(WrongState, match="runs"):
        jobs.do(lambda c: administration.delete_job(c, number))
    jobs.finish(begun)
    jobs.do(lambda c: administration.delete_job(c, number))
    with pytest.raises(UnknownJob):
        jobs.get(number)
    assert [jobs.rows(table) for table in (job, attempt, run, lock)] == [0] * 4


@pytest.mark.full
def test_jobs_of_one_run_that_are_deleted_at_once_leave_no_run(postgres: Postgres) -> None:
    postgres.create_database("deletions")
    jobs = Store(engine_for(postgres.url("deletions")))
    migrate(jobs.engine)
    first, second = (jobs.register(coalesce=True) for _ in range(2))
    jobs.finish(jobs.begun())
    with ThreadPoolExecutor(1) as threads:
        with jobs.engine.begin() as connection:
            administration.delete_job(connection, first)
            deleted = threads.submit(jobs.do, lambda connection: administration.delete_job(connection, second))
            # Until the first deletion is committed, the second one cannot know whether its run is still needed
            waiting = partial(jobs.do, lambda connection: connection.exec_driver_sql(WAITING).scalar())
            until(lambda: waiting() == 1 or deleted.done(), what="the second deletion")
        deleted.result(PATIENCE_SECONDS)
    with reading(jobs.engine) as connection:
        assert [connection.execute(select(func.count()).select_from(table)).scalar() for table in (attempt, run)] == [
            0,
            0,
        ]
    jobs.engine.dispose()


def test_redo_casts_the_oldest_due_job_of_each_resource_and_again_only_after_the_pause(
    jobs: Store,
) -> None:
    jobs.register("late", due=-1)
    jobs.register("old", due=-20)
    jobs.register("late", due=-1)
    jobs.register("not due")
    assert jobs.cast_due() == (3, ["old", "late"])
    assert jobs.cast_due() == (0, [])


def test_what_failed_is_not_starved_by_what_is_new(jobs: Store) -> None:
    failed = jobs.register("failed")
    jobs.finish(jobs.begun("failed"), states.FAILED)
    jobs.overdue(failed)
    for number in range(10):
        jobs.register(f"new {number}", due=-1)
    assert jobs.cast_due(most=1) == (1, ["failed"])


def test_what_failed_and_was_cast_can_begin(jobs: Store) -> None:
    number = jobs.register()
    jobs.finish(jobs.begun(), states.FAILED)
    jobs.overdue(number)
    assert jobs.cast_due() == (1, ["r"])
    assert jobs.begun().job == number


def test_a_resource_whose_job_runs_is_not_cast_and_the_next_is_due_soon_after_its_end(jobs: Store) -> None:
    first, second = jobs.register(due=-1), jobs.register(due=-1)
    begun = jobs.begun()
    assert begun.job == first
    assert jobs.cast_due() == (1, [])
    assert jobs.get(second).due_at > begun_at(jobs, begun) + LONG / 2
    jobs.finish(begun)
    assert jobs.get(second).due_at < begun_at(jobs, begun) + LONG / 2


def begun_at(jobs: Store, begun: records.StartedRun) -> float:
    return float(jobs.do(lambda c: c.execute(select(run.c.began_at).where(run.c.id == begun.token)).scalar_one()))


def test_a_job_that_is_cast_in_vain_is_cast_less_and_less_often(jobs: Store) -> None:
    number = jobs.register(due=-1)
    pauses = []
    for _ in range(scans.MOST_PAUSES + 3):
        assert jobs.cast_due(pause=100.0)[0] == 1
        pauses.append(round((jobs.get(number).due_at - jobs.get(number).registered_at) / 100))
        jobs.overdue(number)
    assert pauses == [*range(1, scans.MOST_PAUSES + 1), *[scans.MOST_PAUSES] * 3]


@pytest.mark.parametrize(
    "ask, index",
    [
        (lambda c: running.begin(c, type="t", resource="r", worker="w", lease=LONG), "ix_osrdyne_job_next"),
        (lambda c: running.is_due(c, type="t", resource="r"), "ix_osrdyne_job_next"),
        (lambda c: scans.cast_due(c, most=10, pause=1.0), "ix_osrdyne_job_due"),
        (lambda c: history.archive(c, after=1.0, keep=1.0, most=10), "ix_osrdyne_job_finished"),
        (lambda c: scans.lose(c, 10), "ix_osrdyne_job_lock_expiry"),
        (lambda c: running.renew(c, [records.RunLock(1, "w")], LONG), "ix_osrdyne_job_lock_run"),
    ],
    ids=["begin", "look", "cast", "archive", "lose", "renew"],
)
def test_what_is_asked_often_is_answered_by_an_index(
    jobs: Store, ask: Callable[[Connection], object], index: str
) -> None:
    plans: list[str] = []
    explain = "EXPLAIN " if jobs.engine.dialect.name == "postgresql" else "EXPLAIN QUERY PLAN "

    def note(_: Any, cursor: Any, statement: str, parameters: Any, *more: Any) -> None:
        if statement.startswith(("SELECT", "UPDATE", "DELETE")):
            cursor.execute(explain + statement.split(" FOR UPDATE", maxsplit=1)[0], parameters)
            plans.append(str(cursor.fetchall()))

    jobs.register()
    event.listen(jobs.engine, "before_cursor_execute", note)

    def explained(connection: Connection) -> None:
        if jobs.engine.dialect.name == "postgresql":
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")  # which is quicker for so few rows
            connection.exec_driver_sql("SET LOCAL enable_bitmapscan = off")
        ask(connection)

    jobs.do(explained)
    assert [plan for plan in plans if index in plan], plans


def test_one_redo_process_leads_until_it_resigns_or_its_lease_ends(jobs: Store) -> None:
    def lead(holder: str, lease: float = LONG) -> bool:
        return jobs.do(lambda c: scans.lead(c, holder=holder, lease=lease))

    assert [lead("a"), lead("b"), lead("a")] == [True, False, True]
    jobs.do(lambda c: scans.resign(c, holder="a"))
    assert [lead("b", lease=0), lead("a")] == [True, True]


def test_jobs_that_ended_move_to_the_history_and_leave_it_in_batches(jobs: Store) -> None:
    numbers = [jobs.register(str(n)) for n in range(5)]
    for n in range(4):
        jobs.finish(jobs.begun(str(n)))

    def archive(*, keep: float) -> tuple[int, int]:
        return jobs.do(lambda c: history.archive(c, after=-1, keep=keep, most=3))

    assert [archive(keep=LONG), archive(keep=LONG), archive(keep=LONG)] == [(3, 0), (1, 0), (0, 0)]
    assert [jobs.state(number) for number in numbers] == [states.DONE] * 4 + [states.REGISTERED]
    assert jobs.attempts(numbers[0]) == [states.DONE]
    listed = jobs.do(lambda c: administration.listed(c, history=True))
    assert [job.id for job in listed] == numbers[:4]
    assert [archive(keep=-1), archive(keep=-1)] == [(0, 3), (0, 1)]
    assert [jobs.rows(table) for table in (job_history, attempt, run)] == [0] * 3
    assert jobs.register() > max(numbers)


def test_jobs_are_listed_by_what_is_asked_for_and_in_pages(jobs: Store) -> None:
    numbers = [jobs.register(resource) for resource in "abab"]
    jobs.finish(jobs.begun("a"))

    def listed(**asked: Any) -> list[int]:
        with reading(jobs.engine) as connection:
            return [job.id for job in administration.listed(connection, **asked)]

    assert listed() == numbers
    assert listed(resource="b") == [numbers[1], numbers[3]]
    assert listed(state=states.DONE) == [numbers[0]]
    assert listed(type="other") == []
    assert (listed(older_than=LONG), listed(older_than=-1)) == ([], numbers)
    assert (listed(most=3), listed(after=numbers[2])) == (numbers[:3], numbers[3:])
    with reading(jobs.engine) as connection:
        assert administration.counts(connection) == {**dict.fromkeys(states.STATES, 0), "registered": 3, "done": 1}


def test_reasons_and_names_of_any_text_are_kept(jobs: Store) -> None:
    resource = "é/\N{GREEK SMALL LETTER OMEGA} '; drop table"
    number = jobs.register(resource)
    jobs.finish(jobs.begun(resource), states.FAILED, "a\0b" + "x" * 3000)
    found = jobs.get(number)
    assert found.resource == resource
    assert found.reason is not None
    assert (found.reason[:3], len(found.reason)) == ("a\N{REPLACEMENT CHARACTER}b", outcomes.MOST_REASON)
