"""`osrdyne_events`: Spark reads the events that ingest reads, from files and from a stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from osrdyne_pipeline.source import datasource, reading
from osrdyne_pipeline.source.options import SourceOptions
from tests.pipeline.source.conftest import FAR, Events
from tests.pipeline.tables.histories import ordered


def rows(found: DataFrame) -> list[tuple[Any, ...]]:
    return ordered(found.collect())


def read(options: SourceOptions) -> list[tuple[Any, ...]]:
    return ordered(tuple(row.values()) for batch in reading.read(options) for row in batch.to_pylist())


def test_spark_reads_of_a_folder_what_ingest_reads(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"key":"k","event":"alive","event_id":"one","time_ms":5}\nrubbish\n')
    (tmp_path / "b.parquet").write_bytes(b"PAR1 and no more")
    datasource.register(spark)

    found = rows(spark.read.format(datasource.NAME).load(str(tmp_path)))

    assert len(found) == 3
    assert found == read(SourceOptions(paths=(str(tmp_path),)))


def test_spark_reads_of_a_stream_what_ingest_reads(spark: SparkSession, pool_events: Events) -> None:
    pool_events.send(3)
    pool_events.send_unreadable(FAR)
    pool_events.send(2)
    uri_file = str(pool_events.uri_file)
    datasource.register(spark)

    reader = spark.read.format(datasource.NAME).option("pool", "core").option("uri_file", uri_file)
    found = rows(reader.option("startingOffset", "1").load())

    stream = pool_events.stream
    assert len(found) == 5
    assert found == read(SourceOptions(stream=stream, source=stream, uri_file=uri_file, start=1))
