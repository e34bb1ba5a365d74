"""Worker-hours: how long groups were up, and how much of that they worked; a life that spans midnight counts in both.

What a group costs is its own time. How many workers it had is the autoscaler's, and not in the events.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- the usual name for it

from osrdyne_pipeline.schemas import WORKER_HOURS


def worker_hours(lives: DataFrame) -> DataFrame:
    """Return WORKER_HOURS of LIVES. `lives` counts those that were up on the day."""
    return (
        lives.select("key", F.inline("days"))
        .groupBy("key", "day")
        .agg(F.sum("up_ms").alias("up_ms"), F.sum("busy_ms").alias("busy_ms"), F.count("*").alias("lives"))
        .withColumn("idle_ms", F.col("up_ms") - F.col("busy_ms"))
        .select(*WORKER_HOURS.names)
    )
