"""The traceback of an attempt whose handler raised an exception."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = None


def upgrade() -> None:
    op.add_column("osrdyne_job_run", sa.Column("traceback", sa.Text()))
