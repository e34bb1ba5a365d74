"""Unit tests of osrdyne_jobs: decisions, without a database."""
