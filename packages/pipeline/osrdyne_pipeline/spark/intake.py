"""Events into the lake by Spark: read, judged and written aside, a batch at a time."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- the usual name for it

from osrdyne_pipeline import batches, judging, places
from osrdyne_pipeline.batches import Batch
from osrdyne_pipeline.errors import BrokerAway, SourceError
from osrdyne_pipeline.lake import Lake
from osrdyne_pipeline.source import datasource
from osrdyne_pipeline.spark.rows import write_rows

#: Days that a task writes at once; with more, Spark sorts the rest of its rows first.
OPEN_DAYS = 32
#: Where Spark puts rows without a day.
NO_DAY = "day=__HIVE_DEFAULT_PARTITION__"


def write_batch(
    spark: SparkSession, lake: Lake, batch: Batch, options: Mapping[str, str], latest_ms: int
) -> tuple[int, dict[str, int]]:
    """Read what the options name, judge it and write it aside, in one pass over the source.

    Return how many events it has, and how many rejects of each reason. No event is later than `latest_ms`. Raises
    `SourceError`.
    """
    datasource.register(spark)
    raw = spark.read.format(datasource.NAME).options(**options).load()
    counts = Observation()
    judged = judging.judge(raw, now_ms=latest_ms, allowance_ms=0)
    judged = judged.observe(counts, F.count(F.lit(1)).alias("rows"), F.count(F.col("reason")).alias("rejects"))
    try:
        reasons = write_judged(lake, judged, batch)
    except PySparkException as error:
        raise _source_error(error) from error
    return int(counts.get["rows"]) - int(counts.get["rejects"]), reasons


def write_judged(lake: Lake, judged: DataFrame, batch: Batch) -> dict[str, int]:
    """Write judged rows aside; return how many rejects there are of each reason."""
    aside, bad_aside = batches.place_for(lake, batch)
    spark = judged.sparkSession
    spark.conf.set("spark.sql.maxConcurrentOutputFileWriters", str(OPEN_DAYS))
    judged.write.partitionBy("day").parquet(str(aside))
    if not (aside / NO_DAY).is_dir():
        return {}
    aside_rows = spark.read.options(**places.LITERAL).schema(judged.schema)
    bad = judging.rejected(aside_rows.parquet(str(aside / NO_DAY))).cache()
    try:
        write_rows("rejects", bad, bad_aside)
        found = bad.groupBy("reason").agg(F.count(F.lit(1)).alias("rows")).collect()
    finally:
        bad.unpersist()
    shutil.rmtree(aside / NO_DAY)
    return {row["reason"]: row["rows"] for row in found}


def _source_error(error: PySparkException) -> SourceError:
    """Return what a worker raised, of its last line: the rest is Spark's and Python's way there."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("osrdyne_pipeline.errors.")]
    if not ours:
        return SourceError(" ".join(lines[:3]))
    kind, _, text = ours[-1].partition(": ")
    return (BrokerAway if kind.endswith(BrokerAway.__name__) else SourceError)(text or kind)
