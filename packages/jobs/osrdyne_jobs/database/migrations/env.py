"""Alembic's entry: `osrdyne_jobs.database.engines.migrate` passes the connection, and which chain it goes along."""

from alembic import context

from osrdyne_jobs.database.tables import metadata

given = context.config.attributes
context.configure(connection=given["connection"], target_metadata=metadata, version_table=given["chain"].noted_in)
context.run_migrations()
