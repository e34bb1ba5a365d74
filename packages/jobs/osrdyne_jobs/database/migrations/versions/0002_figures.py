"""Indexes for the figures of all jobs: by state, why they failed, and the outcomes of runs that ended lately."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

HAS_FAILED = sa.text("state IN ('failed', 'parked')")


def upgrade() -> None:
    op.create_index("ix_osrdyne_job_state", "osrdyne_job", ["id", "state"], unique=False)
    op.create_index(
        "ix_osrdyne_job_failures",
        "osrdyne_job",
        ["id"],
        unique=False,
        postgresql_where=HAS_FAILED,
        sqlite_where=HAS_FAILED,
    )
    op.create_index("ix_osrdyne_job_run_ended", "osrdyne_job_run", ["ended_at", "outcome"], unique=False)
