"""Tests of what comes before the tables: the source, its judge, ingest and the lake."""
