"""The trade-off curve of every key: for each candidate delay, the cold starts and the worker time of a replay of it.

One pass over the requests. A gap is warm under every longer delay and cold under every shorter one, so each gap is only
counted in the bin between two candidates; sums over bins then say what each candidate would have done, exactly. What is
grouped is keys times candidates, however many requests there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 -- the usual name for it

from osrdyne_pipeline.recommendation.calls import ORDER
from osrdyne_pipeline.recommendation.choices.options import DELAYS, STOP_SECONDS
from osrdyne_pipeline.schemas import KEEP_ALIVE

_STOP_MS = int(STOP_SECONDS * 1000)


def keep_alive(requests: DataFrame, classes: DataFrame, delays: Sequence[float] = tuple(DELAYS)) -> DataFrame:
    """Return KEEP_ALIVE of REQUESTS and KEY_CLASSES.

    Of a candidate (seconds, unbind and stop delay together) the last STOP_SECONDS are the stop delay: a request is cold
    that comes `delay - STOP_SECONDS` or more after the end of the one before, a key's first always. A group is up from
    a request to the candidate's delay after its end, at most until the last moment of the history.
    """
    candidates = sorted({int(delay * 1000) for delay in delays})
    edges = sorted({*candidates, *(candidate - _STOP_MS for candidate in candidates)})
    curve = _summed(_binned(requests, edges), candidates, edges)
    known = curve.join(F.broadcast(classes.select("key", "class")), on="key", how="left")
    return known.withColumn("class", F.coalesce("class", F.lit("rare"))).select(*KEEP_ALIVE.names)


def _binned(requests: DataFrame, edges: list[int]) -> DataFrame:
    """One row a key and bin: sums over its gaps. Bin n: n edges are no longer than the gap that follows a request."""
    last = requests.agg(F.max(end_ms()).alias("last_ms"))
    in_order = Window.partitionBy("key").orderBy(*ORDER)
    reach = F.greatest("end_ms", F.coalesce("before_ms", "end_ms"))
    each = (
        gaps(requests)
        .withColumn("next_ms", F.lead("seen_ms").over(in_order))
        .crossJoin(F.broadcast(last))
        .select(
            "key",
            F.col("before_ms").isNull().cast("long").alias("first"),
            F.col("next_ms").isNotNull().cast("long").alias("closed"),
            F.greatest(F.lit(0), F.coalesce("next_ms", "last_ms") - reach).alias("gap"),
            # Time in which a request ran, and none that came earlier.
            F.greatest(F.lit(0), F.col("end_ms") - F.greatest("seen_ms", F.coalesce("before_ms", "seen_ms"))).alias(
                "busy"
            ),
        )
    )
    passed = [(F.col("gap") >= edge).cast("int") for edge in edges]
    return each.groupBy("key", reduce(add, passed).alias("bin")).agg(
        F.count("*").alias("requests"),
        F.sum("first").alias("first"),
        F.sum("closed").alias("closed"),
        F.sum("gap").alias("gap"),
        F.sum("busy").alias("busy"),
    )


def _summed(binned: DataFrame, candidates: list[int], edges: list[int]) -> DataFrame:
    """Add up the bins for each candidate."""
    choices = F.array(
        *(
            F.struct(
                F.lit(candidate).cast("long").alias("delay_ms"),
                F.lit(edges.index(candidate)).alias("stopped"),
                F.lit(edges.index(candidate - _STOP_MS)).alias("unbound"),
            )
            for candidate in candidates
        )
    )
    idle = F.when(F.col("bin") > F.col("stopped"), F.col("requests") * F.col("delay_ms")).otherwise(F.col("gap"))
    missed = F.when(F.col("bin") > F.col("unbound"), F.col("closed")).otherwise(0)
    return (
        binned.select("*", F.inline(choices))
        .groupBy("key", "delay_ms")
        .agg(
            F.sum("requests").alias("requests"),
            F.sum(F.col("first") + missed).alias("cold"),
            F.sum(F.col("busy") + idle).alias("up_ms"),
            F.sum(idle).alias("idle_ms"),
        )
    )


def end_ms() -> Column:
    """When a request was done with; where that is not known, when it was last seen."""
    return F.greatest("seen_ms", F.coalesce("done_ms", "received_ms", "seen_ms"))


def gaps(requests: DataFrame) -> DataFrame:
    """Return each request's key, its `seen_ms` and `end_ms`, and `before_ms`: until when its key had been active, null
    for a key's first.
    """
    earlier = Window.partitionBy("key").orderBy(*ORDER).rowsBetween(Window.unboundedPreceding, -1)
    return requests.select("key", "request_id", "number", "seen_ms", end_ms().alias("end_ms")).withColumn(
        "before_ms", F.max("end_ms").over(earlier)
    )
