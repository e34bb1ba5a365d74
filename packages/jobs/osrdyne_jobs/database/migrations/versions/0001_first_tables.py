"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
WAITING = sa.text("state IN ('registered', 'failed')")
ENDED = sa.text("finished_at IS NOT NULL")


def upgrade() -> None:
    op.create_table(
        "osrdyne_job",
        sa.Column("id", NUMBER, autoincrement=True, nullable=False),
        sa.Column("type", sa.String(length=100), nullable=False),
        sa.Column("resource", sa.String(length=255), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("coalesce", sa.Boolean(), nullable=False),
        sa.Column("state", sa.String(length=12), nullable=False),
        sa.Column("attempts", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("registered_at", sa.Float(precision=53), nullable=False),
        sa.Column("begin_after", sa.Float(precision=53), nullable=False),
        sa.Column("due_at", sa.Float(precision=53), nullable=False),
        sa.Column("casts", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("run_id", NUMBER, nullable=True),
        sa.Column("cancel", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("finished_at", sa.Float(precision=53), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_osrdyne_job_due",
        "osrdyne_job",
        ["due_at", "id"],
        unique=False,
        postgresql_where=WAITING,
        sqlite_where=WAITING,
    )
    op.create_index(
        "ix_osrdyne_job_finished",
        "osrdyne_job",
        ["finished_at", "id"],
        unique=False,
        postgresql_where=ENDED,
        sqlite_where=ENDED,
    )
    op.create_index(
        "ix_osrdyne_job_next",
        "osrdyne_job",
        ["type", "resource", "id"],
        unique=False,
        postgresql_where=WAITING,
        sqlite_where=WAITING,
    )
    op.create_index("ix_osrdyne_job_run", "osrdyne_job", ["run_id"], unique=False)
    op.create_table(
        "osrdyne_job_attempt",
        sa.Column("job_id", NUMBER, autoincrement=False, nullable=False),
        sa.Column("run_id", NUMBER, autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("job_id", "run_id"),
    )
    op.create_index("ix_osrdyne_job_attempt_run", "osrdyne_job_attempt", ["run_id"], unique=False)
    op.create_table(
        "osrdyne_job_history",
        sa.Column("id", NUMBER, autoincrement=False, nullable=False),
        sa.Column("type", sa.String(length=100), autoincrement=False, nullable=True),
        sa.Column("resource", sa.String(length=255), autoincrement=False, nullable=True),
        sa.Column("payload", sa.Text(), autoincrement=False, nullable=True),
        sa.Column("coalesce", sa.Boolean(), autoincrement=False, nullable=True),
        sa.Column("state", sa.String(length=12), autoincrement=False, nullable=True),
        sa.Column("attempts", sa.Integer(), autoincrement=False, nullable=True),
        sa.Column("max_attempts", sa.Integer(), autoincrement=False, nullable=True),
        sa.Column("registered_at", sa.Float(precision=53), autoincrement=False, nullable=True),
        sa.Column("begin_after", sa.Float(precision=53), autoincrement=False, nullable=True),
        sa.Column("due_at", sa.Float(precision=53), autoincrement=False, nullable=True),
        sa.Column("casts", sa.Integer(), autoincrement=False, nullable=True),
        sa.Column("run_id", NUMBER, autoincrement=False, nullable=True),
        sa.Column("cancel", sa.Boolean(), autoincrement=False, nullable=True),
        sa.Column("finished_at", sa.Float(precision=53), autoincrement=False, nullable=True),
        sa.Column("reason", sa.Text(), autoincrement=False, nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_osrdyne_job_history_finished", "osrdyne_job_history", ["finished_at", "id"], unique=False)
    op.create_table(
        "osrdyne_job_leader",
        sa.Column("name", sa.String(length=20), nullable=False),
        sa.Column("holder", sa.String(length=255), nullable=False),
        sa.Column("expires_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "osrdyne_job_lock",
        sa.Column("type", sa.String(length=100), nullable=False),
        sa.Column("resource", sa.String(length=255), nullable=False),
        sa.Column("run_id", NUMBER, nullable=True),
        sa.Column("worker", sa.String(length=255), nullable=False),
        sa.Column("expires_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("type", "resource"),
    )
    op.create_index("ix_osrdyne_job_lock_expiry", "osrdyne_job_lock", ["expires_at"], unique=False)
    op.create_index("ix_osrdyne_job_lock_run", "osrdyne_job_lock", ["run_id"], unique=False)
    op.create_table(
        "osrdyne_job_run",
        sa.Column("id", NUMBER, autoincrement=True, nullable=False),
        sa.Column("type", sa.String(length=100), nullable=False),
        sa.Column("resource", sa.String(length=255), nullable=False),
        sa.Column("worker", sa.String(length=255), nullable=False),
        sa.Column("began_at", sa.Float(precision=53), nullable=False),
        sa.Column("ended_at", sa.Float(precision=53), nullable=True),
        sa.Column("outcome", sa.String(length=12), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
