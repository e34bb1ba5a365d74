"""Latency split: where the time of requests went that are done with. The parts sum to the whole, to the millisecond."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- the usual name for it

from osrdyne_pipeline.questions.percentiles import percentile
from osrdyne_pipeline.schemas import LATENCY

_PARTS = ("orphan_ms", "start_ms", "queue_ms", "run_ms", "total_ms")


def latency(requests: DataFrame) -> DataFrame:
    """Return LATENCY of REQUESTS: by key, by the day on which they were first seen, cold and warm apart."""
    return (
        requests.where("done_ms is not null")
        .groupBy("key", "cold", "day")
        .agg(
            F.count("*").alias("requests"),
            *(F.sum(part).alias(part) for part in _PARTS),
            percentile("total_ms", 0.5).alias("p50_ms"),
            percentile("total_ms", 0.95).alias("p95_ms"),
            percentile("total_ms", 0.99).alias("p99_ms"),
        )
        .select(*LATENCY.names)
    )
