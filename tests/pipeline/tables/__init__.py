"""Tests of the silver and gold tables: by hand, and against the same tables made by plain Python."""
