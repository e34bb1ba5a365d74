"""Tables of one version come to the next while programs of both work with them."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, text

from osrdyne_jobs.database import engines as database
from osrdyne_jobs.database.engines import ADDITIONS, VERSIONS, check_tables, engine_for, migrate, reading, writing
from osrdyne_jobs.errors import JobError, NoSchema
from testbed.waiting import PATIENCE_SECONDS, until

_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@pytest.fixture
def without_additions(database_url: str) -> Iterator[Engine]:
    """Tables as the release before made them."""
    engine = engine_for(database_url)
    migrate(engine)
    with writing(engine) as connection:
        connection.execute(text("ALTER TABLE osrdyne_job_run DROP COLUMN traceback"))
        connection.execute(text(f"DROP TABLE {ADDITIONS.noted_in}"))
    yield engine
    engine.dispose()


def noted(engine: Engine) -> str:
    with reading(engine) as connection:
        return ADDITIONS.present(connection)


def test_tables_without_an_addition_are_refused_until_they_have_it(without_additions: Engine) -> None:
    with pytest.raises(NoSchema, match="migrate"):
        check_tables(without_additions)
    migrate(without_additions)
    check_tables(without_additions)


def test_additions_of_a_later_version_do_not_matter(database_url: str) -> None:
    engine = engine_for(database_url)
    migrate(engine)
    with writing(engine) as connection:
        connection.execute(text(f"UPDATE {ADDITIONS.noted_in} SET version_num = '9999'"))  # noqa: S608 - our own name
    check_tables(engine)
    migrate(engine)
    assert noted(engine) == "9999"
    engine.dispose()


def test_an_addition_that_was_noted_as_a_version_becomes_an_addition(without_additions: Engine) -> None:
    migrate(without_additions)
    with writing(without_additions) as connection:
        connection.execute(text(f"DROP TABLE {ADDITIONS.noted_in}"))
        connection.execute(text(f"UPDATE {VERSIONS.noted_in} SET version_num = '0004'"))  # noqa: S608 - our own name
    with pytest.raises(NoSchema, match="migrate"):
        check_tables(without_additions)
    migrate(without_additions)
    check_tables(without_additions)
    assert noted(without_additions) == "0004"


@pytest.fixture
def backed_up(without_additions: Engine) -> Iterator[threading.Event]:
    """Have a transaction read all tables, as a back-up does, until the event."""
    over = threading.Event()
    begun = threading.Event()

    def read() -> None:
        with without_additions.connect() as connection:
            connection.execute(text("LOCK TABLE osrdyne_job_run IN ACCESS SHARE MODE"))
            begun.set()
            over.wait(PATIENCE_SECONDS)

    thread = threading.Thread(target=read)
    thread.start()
    assert begun.wait(PATIENCE_SECONDS)
    yield over
    over.set()
    thread.join()


@pytest.mark.parametrize("database_url", [pytest.param("postgresql", marks=pytest.mark.full)], indirect=True)
def test_a_migration_that_waits_for_a_back_up_holds_up_no_program(
    without_additions: Engine, backed_up: threading.Event
) -> None:
    migration = threading.Thread(target=migrate, args=(without_additions,))
    migration.start()
    try:
        with without_additions.connect() as connection:
            until(
                lambda: connection.execute(text(_WAITING)).scalar_one() == 1, every=0.01, what="a migration that waits"
            )
        # Waits behind the migration, which gives way
        with writing(without_additions, timeout=PATIENCE_SECONDS) as connection:
            connection.execute(text("UPDATE osrdyne_job_run SET reason = ''"))
        assert not noted(without_additions)
    finally:
        backed_up.set()
        migration.join(PATIENCE_SECONDS)
    check_tables(without_additions)


@pytest.mark.parametrize("database_url", [pytest.param("postgresql", marks=pytest.mark.full)], indirect=True)
def test_a_migration_that_waits_too_long_says_for_what(
    without_additions: Engine, backed_up: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "LOCKED_SECONDS", 0.0)
    with pytest.raises(JobError, match="other transactions hold the tables"):
        migrate(without_additions)
