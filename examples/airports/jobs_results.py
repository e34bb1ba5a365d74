"""The tables of `make demo-jobs`, beside those of osrdyne_jobs: results of jobs, and when each run worked.

Workers write them in the transaction of their run, so that a run that lost its lease leaves no row.
"""

from __future__ import annotations

from datetime import date

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Date,
    Engine,
    Float,
    Integer,
    MetaData,
    String,
    Table,
    delete,
    insert,
    select,
)

from examples.airports.day_figures import Figures
from examples.airports.jobs_account import Effect

metadata = MetaData()

#: One row an airport and day: the figures, and the token of the run that wrote them last.
airport_day = Table(
    "airport_day",
    metadata,
    Column("airport", String(3), primary_key=True),
    Column("day", Date, primary_key=True),
    Column("token", BigInteger, nullable=False),
    Column("flights", Integer, nullable=False),
    Column("cancelled", Integer, nullable=False),
    Column("mean_delay", Float(53)),
)

#: One row a run whose effect was accepted. Times are those of the machine's monotonic clock, in seconds.
airport_run = Table(
    "airport_run",
    metadata,
    Column("token", BigInteger, primary_key=True, autoincrement=False),
    Column("airport", String(3), nullable=False),
    Column("began", Float(53), nullable=False),
    Column("ended", Float(53), nullable=False),
)


def make(engine: Engine) -> None:
    """Make the tables."""
    metadata.create_all(engine)


def write(connection: Connection, airport: str, day: date, token: int, figures: Figures) -> None:
    """Write the figures of a day, in place of those of an earlier run."""
    connection.execute(delete(airport_day).where(airport_day.c.airport == airport, airport_day.c.day == day))
    values = {"airport": airport, "day": day, "token": token, **figures._asdict()}
    connection.execute(insert(airport_day).values(values))


def note(connection: Connection, effect: Effect) -> None:
    """Write when a run worked. Do it last in its transaction."""
    values = {"token": effect.token, "airport": effect.resource, "began": effect.began, "ended": effect.ended}
    connection.execute(insert(airport_run).values(values))


def results(connection: Connection) -> dict[tuple[str, date], Figures]:
    """Return all figures by airport and day."""
    columns = (airport_day.c[name] for name in ("airport", "day", *Figures._fields))
    return {(row[0], row[1]): Figures(*row[2:]) for row in connection.execute(select(*columns))}


def effects(connection: Connection) -> list[Effect]:
    """Return when runs worked whose effect was accepted."""
    columns = (airport_run.c[name] for name in ("airport", "token", "began", "ended"))
    return [Effect(*row) for row in connection.execute(select(*columns))]
