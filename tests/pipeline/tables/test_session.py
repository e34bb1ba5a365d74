"""What the session's settings do for tables: damage shows, and Spark does not compile the same code twice."""

from __future__ import annotations

import secrets

import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from osrdyne_pipeline.lake import Lake
from osrdyne_pipeline.schemas import EVENTS
from tests.pipeline.tables.histories import Pool, bronze

#: Spark keeps the code of a hundred queries by default.
QUERIES = 120


def test_a_damaged_byte_of_a_table_shows_when_spark_reads_it(spark: SparkSession, lake: Lake) -> None:
    pool, text = Pool(), secrets.token_urlsafe(400)
    pool.tell("a", "started", 0, detail=text)
    lake.write("silver/events", bronze(spark, pool.history).select(*EVENTS.names))
    (file,) = lake.path("silver/events").resolve().rglob("*.parquet")
    # Beside it is only what says that the job ended.
    assert {path.name for path in lake.path("silver/events").resolve().rglob("*") if path.is_file()} <= {
        file.name,
        "_SUCCESS",
    }
    details = lake.read(spark, "silver/events").select("detail")
    assert details.collect()[0][0] == text

    group = pq.read_metadata(file).row_group(0)
    column = next(c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == "detail")
    damaged = bytearray(file.read_bytes())
    # Within the text, which is all but a few bytes of the column.
    damaged[column.data_page_offset + column.total_compressed_size - 100] ^= 4
    file.write_bytes(damaged)

    with pytest.raises(Py4JJavaError, match="CRC checksum"):
        details.collect()


# 240 queries, of a few milliseconds each once Java is warm.
@pytest.mark.full
def test_a_session_makes_the_code_of_its_queries_once(spark: SparkSession) -> None:
    metrics = spark.sparkContext._jvm.org.apache.spark.metrics.source.CodegenMetrics  # type: ignore[union-attr]

    def compiled() -> int:
        """Ask some queries, and return for how many classes of them code was compiled."""
        before = int(metrics.METRIC_COMPILATION_TIME().getCount())
        for number in range(QUERIES):
            spark.range(1, numPartitions=1).selectExpr(f"id + {number} as n").where("n > 0").collect()
        return int(metrics.METRIC_COMPILATION_TIME().getCount()) - before

    assert compiled() >= QUERIES
    assert compiled() == 0
