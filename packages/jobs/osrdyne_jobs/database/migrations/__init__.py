"""The tables of each version, for Alembic."""
