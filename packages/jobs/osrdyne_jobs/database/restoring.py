"""What follows when a database is restored from a back-up: it gives ids again that jobs and runs after that have had.

Who kept such an id outside of the database takes a new job for an old one. A store that checks fencing tokens refuses
new runs. Only who restores knows of it, so a person says so: by `osrdyne jobs restored`.
"""

from __future__ import annotations

from sqlalchemy import Connection, Engine, text

from osrdyne_jobs.database.engines import migrate, now
from osrdyne_jobs.database.tables import job, run

#: Ids go on at the time in microseconds: nothing has registered more jobs, or begun more runs, than that.
PER_SECOND = 1_000_000

_SEQUENCE = text(
    "SELECT setval(pg_get_serial_sequence(:name, 'id'), GREATEST(nextval(pg_get_serial_sequence(:name, 'id')), :least))"
)
_COUNTER = text("UPDATE sqlite_sequence SET seq = MAX(seq, :least) WHERE name = :name RETURNING seq")
_FIRST = text("INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :least) RETURNING seq")


def raise_ids(engine: Engine) -> dict[str, int]:
    """Bring the tables to this version, and give only ids from now on that no job and no run has had.

    Call it after each restore, as the owner of the tables; while programs work, it does no harm. Returns by the name of
    each table which id was the last one. Raises JobError as `migrate` does.
    """
    migrate(engine)
    with engine.begin() as connection:
        least = int(connection.execute(now().select()).scalar_one() * PER_SECOND)
        return {table.name: _raised(connection, table.name, least) for table in (job, run)}


def _raised(connection: Connection, name: str, least: int) -> int:
    which = {"name": name, "least": least}
    if connection.dialect.name == "postgresql":
        return int(connection.execute(_SEQUENCE, which).scalar_one())
    found = connection.execute(_COUNTER, which).scalar()
    return int(connection.execute(_FIRST, which).scalar_one() if found is None else found)
