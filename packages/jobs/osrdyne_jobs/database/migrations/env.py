"""Alembic's entry: `osrdyne_jobs.database.engines.migrate` passes the connection."""

from alembic import context

from osrdyne_jobs.database.engines import VERSION_TABLE
from osrdyne_jobs.database.tables import metadata

context.configure(
    connection=context.config.attributes["connection"], target_metadata=metadata, version_table=VERSION_TABLE
)
context.run_migrations()
