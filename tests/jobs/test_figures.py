"""The figures of all jobs, on both databases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, event, insert, update

from osrdyne_jobs import figures, states
from osrdyne_jobs.database.engines import ADDITIONS, VERSIONS, engine_for, migrate, now, reading
from osrdyne_jobs.database.tables import job, metadata, run
from osrdyne_jobs.store import scans
from tests.jobs.test_store import LONG, Store


@pytest.fixture
def jobs(database_url: str) -> Iterator[Store]:
    engine = engine_for(database_url)
    migrate(engine)
    yield Store(engine)
    engine.dispose()


def registered_ago(jobs: Store, number: int, seconds: float) -> None:
    jobs.do(lambda c: c.execute(update(job).where(job.c.id == number).values(registered_at=now() - seconds)))


def test_each_state_has_its_number_and_its_oldest_job(jobs: Store) -> None:
    old, waiting, parked = jobs.register("a"), jobs.register("b"), jobs.register("c", attempts=1)
    jobs.finish(jobs.begun("c"), states.FAILED, "no")
    registered_ago(jobs, old, 2 * LONG)

    found = {figure.state: figure for figure in jobs.do(figures.by_state)}

    assert list(found) == list(states.STATES)
    assert (found[states.REGISTERED].jobs, found[states.REGISTERED].oldest) == (2, old)
    assert (found[states.REGISTERED].age or 0) >= 2 * LONG
    assert (found[states.PARKED].jobs, found[states.PARKED].oldest) == (1, parked)
    assert found[states.DONE] == figures.StateFigures(states.DONE, 0, None, None)
    assert waiting > old


def test_redo_is_late_by_the_most_overdue_job_that_waits(jobs: Store) -> None:
    assert jobs.do(figures.redo_lag) == 0
    jobs.register("soon", due=LONG)
    assert jobs.do(figures.redo_lag) == 0
    jobs.register("late", due=-LONG)
    jobs.register("later", due=-2 * LONG)
    jobs.register("it runs", due=-9 * LONG)
    jobs.begun("it runs")
    assert 2 * LONG <= jobs.do(figures.redo_lag) < 9 * LONG


def test_runs_of_the_last_hour_count_by_their_outcome(jobs: Store) -> None:
    assert jobs.do(figures.runs) == dict.fromkeys(figures.OUTCOMES, 0)
    for resource, outcome in enumerate((states.DONE, states.DONE, states.FAILED, states.CANCELLED)):
        jobs.register(str(resource))
        jobs.finish(jobs.begun(str(resource)), outcome)
    jobs.register("lost")
    jobs.begun("lost", lease=0)
    assert jobs.do(figures.expired_leases) == 1
    jobs.do(lambda c: scans.lose(c, 10))
    jobs.register("runs")
    jobs.begun("runs")
    old = insert(run).values(type="t", resource="r", worker="w", began_at=0.0, outcome=states.DONE)
    jobs.do(lambda c: c.execute(old.values(ended_at=now() - 2 * figures.RUNS_WINDOW_SECONDS)))

    assert jobs.do(figures.runs) == {states.DONE: 2, states.FAILED: 1, states.CANCELLED: 1, states.LOST: 1}
    assert jobs.do(figures.expired_leases) == 0


def test_failures_of_one_cause_count_together_the_most_frequent_first(jobs: Store) -> None:
    for number in range(3):
        last = jobs.register(f"busy {number}", attempts=number + 1)
        jobs.finish(jobs.begun(f"busy {number}"), states.FAILED, f"TimeoutError: 'host-{number}' after 1{number} s")
    jobs.register("other")
    jobs.finish(jobs.begun("other"), states.FAILED, "KeyError: 'x'\nsecond line")
    jobs.register("fine")
    jobs.finish(jobs.begun("fine"))

    first, second = jobs.do(figures.causes)

    assert first == figures.FailureCause("t", "TimeoutError: 'host-2' after 12 s", 3, last)
    assert (second.reason, second.jobs) == ("KeyError: 'x'", 1)
    assert len(jobs.do(lambda c: figures.causes(c, most=1))) == 1


def test_causes_differ_by_type_and_by_words() -> None:
    failures = [(1, "a", "boom"), (2, "b", "boom"), (3, "a", "bang"), (4, "a", "boom")]
    assert [(cause.type, cause.reason, cause.jobs, cause.latest) for cause in figures.grouped_causes(failures)] == [
        ("a", "boom", 2, 4),
        ("a", "bang", 1, 3),
        ("b", "boom", 1, 2),
    ]


@pytest.mark.parametrize(
    "one, other",
    [
        ("no file 'a.txt'", "no file 'b.txt'"),
        ('no file "a.txt"', 'no file "b.txt"'),
        ("at 0x7f01", "at 0xdead"),
        ("run 3d4e5f60-aaaa-bbbb", "run 0d4e5f61-cccc-dddd"),
        ("line 3", "line 44"),
    ],
)
def test_values_make_no_causes_of_their_own(one: str, other: str) -> None:
    (cause,) = figures.grouped_causes([(1, "t", one), (2, "t", other)])
    assert (cause.jobs, cause.reason) == (2, other)


@pytest.mark.parametrize(
    "ask, index",
    [
        (figures.by_state, "ix_osrdyne_job_state"),
        (figures.redo_lag, "ix_osrdyne_job_due"),
        (figures.runs, "ix_osrdyne_job_run_ended"),
        (figures.expired_leases, "ix_osrdyne_job_lock_expiry"),
        (figures.causes, "ix_osrdyne_job_failures"),
    ],
)
def test_figures_are_answered_by_an_index(jobs: Store, ask: Callable[[Connection], object], index: str) -> None:
    plans: list[str] = []
    postgresql = jobs.engine.dialect.name == "postgresql"

    def note(_: Any, cursor: Any, statement: str, parameters: Any, *more: Any) -> None:
        if statement.startswith("SELECT"):
            cursor.execute(("EXPLAIN " if postgresql else "EXPLAIN QUERY PLAN ") + statement, parameters)
            plans.append(str(cursor.fetchall()))

    with reading(jobs.engine) as connection:
        if postgresql:
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")  # which is quicker for so few rows
            connection.exec_driver_sql("SET LOCAL enable_bitmapscan = off")
        event.listen(jobs.engine, "before_cursor_execute", note)
        ask(connection)

    assert plans
    assert [plan for plan in plans if index not in plan] == []


def test_migrations_make_the_tables_that_the_code_knows(jobs: Store) -> None:
    def ours(name: str | None, *_: Any) -> bool:
        return name != ADDITIONS.noted_in

    with reading(jobs.engine) as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": VERSIONS.noted_in, "include_name": ours}
        )
        found = compare_metadata(context, metadata)
    # The history was made with columns that may be null.
    assert [
        difference
        for difference in found
        if not (isinstance(difference, list) and difference[0][0] == "modify_nullable")
    ] == []
