"""Tests of the data pipeline: on a real Spark, and where a stream is read, on a real broker."""
