"""The database that a command works on: its address, which holds a password, and an engine of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from osrdyne_jobs.database.addresses import advice
from osrdyne_jobs.database.engines import address_from_environment, check_tables, engine_for, place, reason
from osrdyne_runtime.console.output import CannotAsk


@contextmanager
def opened(file: Path | None) -> Iterator[Engine]:
    """Give an engine of the database whose address a file holds, or the environment, with the tables checked.

    Raises SettingsError, NoSchema, CannotAsk for what the database refuses, and JobError for an address not of ours.
    """
    with connectable(file) as engine:
        check_tables(engine)
        yield engine


@contextmanager
def connectable(file: Path | None, *, may_make: bool = False) -> Iterator[Engine]:
    """Give the same engine without a look at the tables. `may_make`: a file of SQLite need not exist."""
    # At each connection it is read again: the password may have changed.
    engine = engine_for(partial(address, file))
    try:
        if not may_make:
            _refuse_missing(engine)
        yield engine
    except SQLAlchemyError as error:
        why = reason(error)
        raise CannotAsk(f"database {place(engine)}: {why}{advice(why)}") from None
    finally:
        engine.dispose()


def address(file: Path | None) -> str:
    """Return the database's address. Raises SettingsError."""
    return address_from_environment(file, "--database-file")


def _refuse_missing(engine: Engine) -> None:
    """Refuse a file of SQLite that does not exist: it would be made, and be empty."""
    name = engine.url.database
    if engine.dialect.name == "sqlite" and name and name != ":memory:" and not Path(name).exists():
        raise CannotAsk(f"database {place(engine)}: there is no such file; make it with `osrdyne jobs migrate`")
