"""The index of a run's jobs without those that have not run: registering a job need not write to it."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

HAS_RUN = sa.text("run_id IS NOT NULL")


def upgrade() -> None:
    op.drop_index("ix_osrdyne_job_run", "osrdyne_job")
    op.create_index(
        "ix_osrdyne_job_run",
        "osrdyne_job",
        ["run_id"],
        unique=False,
        postgresql_where=HAS_RUN,
        sqlite_where=HAS_RUN,
    )
