"""Tests of the jobs: on SQLite, and on a real PostgreSQL."""
