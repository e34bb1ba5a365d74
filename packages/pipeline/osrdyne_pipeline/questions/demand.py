"""Demand: who asks for what, and when. A request counts in the hour in which it was first seen."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- the usual name for it

from osrdyne_pipeline.schemas import DEMAND
from osrdyne_pipeline.silver.days import day_of, hour_of


def demand(requests: DataFrame) -> DataFrame:
    """Return DEMAND of REQUESTS. `run_ms` is the work of those that are done with."""
    return (
        requests.groupBy("key", hour_of("seen_ms").alias("hour_ms"))
        .agg(
            F.count("*").alias("requests"),
            F.count_if("cold").alias("cold"),
            F.coalesce(F.sum("run_ms"), F.lit(0)).alias("run_ms"),
        )
        .withColumn("day", day_of("hour_ms"))
        .select(*DEMAND.names)
    )
