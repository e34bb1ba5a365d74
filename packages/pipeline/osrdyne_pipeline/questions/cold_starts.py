"""Cold starts and what they cost callers: how long a request that found no queue waited for a worker to take it.

A request that no worker took waited until it was answered so. One that still waits, or whose end was lost, counts as
cold and adds nothing to the waits, which are not known.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- the usual name for it

from osrdyne_pipeline.questions.percentiles import percentile
from osrdyne_pipeline.schemas import COLD_STARTS


def cold_starts(requests: DataFrame, lives: DataFrame) -> DataFrame:
    """Return COLD_STARTS of REQUESTS and LIVES. A start counts on its own day, also when no request caused it."""
    waited_ms = F.coalesce("received_ms", "done_ms") - F.col("seen_ms")
    asked = requests.select(
        "key",
        "day",
        F.lit(1).alias("request"),
        F.col("cold").cast("int").alias("cold"),
        F.lit(0).alias("start"),
        F.when(F.col("cold"), waited_ms).alias("wait_ms"),
    )
    started = lives.select(
        "key",
        "day",
        F.lit(0).alias("request"),
        F.lit(0).alias("cold"),
        F.lit(1).alias("start"),
        F.lit(None).cast("long").alias("wait_ms"),
    )
    return (
        asked.unionByName(started)
        .groupBy("key", "day")
        .agg(
            F.sum("request").alias("requests"),
            F.sum("cold").alias("cold"),
            F.sum("start").alias("starts"),
            F.coalesce(F.sum("wait_ms"), F.lit(0)).alias("waited_ms"),
            F.max("wait_ms").alias("worst_ms"),
            percentile("wait_ms", 0.5).alias("p50_ms"),
            percentile("wait_ms", 0.95).alias("p95_ms"),
        )
        .select(*COLD_STARTS.names)
    )
