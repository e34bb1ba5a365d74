"""The tables. Times are seconds since the Unix epoch on the database's clock.

`migrations/` makes them; a test compares both.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Float, Index, Integer, MetaData, String, Table, Text, text

metadata = MetaData()

#: SQLite counts rows by itself only in a column of this very type.
Number = BigInteger().with_variant(Integer(), "sqlite")
_TYPE, _RESOURCE, _STATE = String(100), String(255), String(12)
#: Names of workers and of redo processes.
_PROCESS = String(255)

#: One row a job. It moves to `job_history` some time after it has ended.
job = Table(
    "osrdyne_job",
    metadata,
    #: Grows with each registration: the order in which jobs of one type and resource run.
    Column("id", Number, primary_key=True, autoincrement=True),
    Column("type", _TYPE, nullable=False),
    Column("resource", _RESOURCE, nullable=False),
    Column("payload", Text, nullable=False),
    Column("coalesce", Boolean, nullable=False),
    Column("state", _STATE, nullable=False),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("max_attempts", Integer, nullable=False),
    Column("registered_at", Float(53), nullable=False),
    #: It must not begin earlier: the pause between two attempts.
    Column("begin_after", Float(53), nullable=False),
    #: When redo casts it (again), if it has not begun by then.
    Column("due_at", Float(53), nullable=False),
    #: How often redo cast it since it last became due.
    Column("casts", Integer, nullable=False, server_default=text("0")),
    #: Its last run.
    Column("run_id", Number),
    #: A person or program wants to end it while it runs.
    Column("cancel", Boolean, nullable=False, server_default=text("false")),
    Column("finished_at", Float(53)),
    #: Why its last attempt failed; while it is registered, why no worker could begin it.
    Column("reason", Text),
    # Without it, SQLite would give the id of a job that moved to the history again.
    sqlite_autoincrement=True,
)
#: Which jobs wait, written so that both databases see that a partial index fits.
IS_WAITING = text("state IN ('registered', 'failed')")
#: Which jobs failed, whether or not there is another attempt.
HAS_FAILED = text("state IN ('failed', 'parked')")
_ENDED = text("finished_at IS NOT NULL")
_HAS_RUN = text("run_id IS NOT NULL")
Index(
    "ix_osrdyne_job_due",
    job.c.due_at,
    job.c.id,
    postgresql_where=IS_WAITING,
    sqlite_where=IS_WAITING,
)
Index(
    "ix_osrdyne_job_next",
    job.c.type,
    job.c.resource,
    job.c.id,
    postgresql_where=IS_WAITING,
    sqlite_where=IS_WAITING,
)
Index("ix_osrdyne_job_run", job.c.run_id, postgresql_where=_HAS_RUN, sqlite_where=_HAS_RUN)
# To count the jobs of each state. Not (state, id): SQLite would take that in place of those that redo needs.
Index("ix_osrdyne_job_state", job.c.id, job.c.state)
Index("ix_osrdyne_job_failures", job.c.id, postgresql_where=HAS_FAILED, sqlite_where=HAS_FAILED)
Index("ix_osrdyne_job_finished", job.c.finished_at, job.c.id, postgresql_where=_ENDED, sqlite_where=_ENDED)

#: Jobs that ended some time ago.
job_history = Table(
    "osrdyne_job_history",
    metadata,
    *(Column(column.name, column.type, primary_key=column.primary_key, autoincrement=False) for column in job.c),
)
Index("ix_osrdyne_job_history_finished", job_history.c.finished_at, job_history.c.id)

#: One row a run. Its id is the fencing token: later runs have larger ones.
run = Table(
    "osrdyne_job_run",
    metadata,
    Column("id", Number, primary_key=True, autoincrement=True),
    Column("type", _TYPE, nullable=False),
    Column("resource", _RESOURCE, nullable=False),
    Column("worker", _PROCESS, nullable=False),
    Column("began_at", Float(53), nullable=False),
    Column("ended_at", Float(53)),
    #: done, failed, cancelled, or lost (its worker did not renew the lease).
    Column("outcome", _STATE),
    Column("reason", Text),
    #: Of the exception that its handler raised, bounded.
    Column("traceback", Text),
    sqlite_autoincrement=True,
)
Index("ix_osrdyne_job_run_ended", run.c.ended_at, run.c.outcome)

#: Which runs did which jobs: a run of coalesced jobs does several.
attempt = Table(
    "osrdyne_job_attempt",
    metadata,
    Column("job_id", Number, primary_key=True, autoincrement=False),
    Column("run_id", Number, primary_key=True, autoincrement=False),
)
Index("ix_osrdyne_job_attempt_run", attempt.c.run_id)

#: One row for each (type, resource) that runs.
lock = Table(
    "osrdyne_job_lock",
    metadata,
    Column("type", _TYPE, primary_key=True),
    Column("resource", _RESOURCE, primary_key=True),
    Column("run_id", Number),
    #: The worker and a random word, by which a run knows its own lock: after a restore, ids of runs come again.
    Column("worker", _PROCESS, nullable=False),
    Column("expires_at", Float(53), nullable=False),
)
Index("ix_osrdyne_job_lock_expiry", lock.c.expires_at)
Index("ix_osrdyne_job_lock_run", lock.c.run_id)

#: Who leads: one row, of which the redo processes try to be the holder.
leader = Table(
    "osrdyne_job_leader",
    metadata,
    Column("name", String(20), primary_key=True),
    Column("holder", _PROCESS, nullable=False),
    Column("expires_at", Float(53), nullable=False),
)
