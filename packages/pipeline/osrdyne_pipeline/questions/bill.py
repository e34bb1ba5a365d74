"""Who used the workers: the busy time of each key and day, taken apart by caller.

Requests that run at the same time share one group, whose busy time counts once. So each caller has the part of it that
is his part of all run time on that day. Parts are whole milliseconds: each is the difference of two rounded sums, so
that they sum to the busy time exactly. What is left of a group's time is idle, and belongs to no caller.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 -- the usual name for it

from osrdyne_pipeline.schemas import BILL
from osrdyne_pipeline.silver.days import DAY_MS, day_of


def bill(requests: DataFrame, worker_hours: DataFrame) -> DataFrame:
    """Return BILL of REQUESTS and WORKER_HOURS. A request counts on its day, its run on each day on which it ran."""
    asked = requests.select(
        "key",
        "caller",
        "day",
        F.lit(1).cast("long").alias("requests"),
        F.col("cold").cast("long").alias("cold"),
        F.coalesce("run_ms", F.lit(0).cast("long")).alias("run_ms"),
        F.lit(0).cast("long").alias("weight"),
    )
    in_day = Window.partitionBy("key", "day")
    so_far = in_day.orderBy("caller").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    busy = worker_hours.select("key", "day", F.col("busy_ms").alias("whole_busy_ms"))
    return (
        asked.unionByName(_runs(requests), allowMissingColumns=True)
        .groupBy("key", "caller", "day")
        .agg(*(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in ("requests", "cold", "run_ms", "weight")))
        .withColumn("up_to", F.sum("weight").over(so_far))
        .withColumn("whole", F.sum("weight").over(in_day))
        .join(busy, ["key", "day"], "left")
        .withColumn("busy_ms", _part("up_to") - _part("up_to - weight"))
        .select(*BILL.names)
    )


def _runs(requests: DataFrame) -> DataFrame:
    """The runs, a row a day."""
    days = F.sequence(F.expr(f"begun_ms div {DAY_MS}"), F.expr(f"(done_ms - 1) div {DAY_MS}"))
    until_ms = F.least(F.col("done_ms"), F.col("day_ms") + DAY_MS)
    return (
        requests.where("received_ms is not null and run_ms > 0")
        .withColumn("begun_ms", F.col("done_ms") - F.col("run_ms"))
        .withColumn("day_number", F.explode(days))
        .withColumn("day_ms", F.col("day_number") * DAY_MS)
        .select(
            "key",
            "caller",
            day_of("day_ms").alias("day"),
            (until_ms - F.greatest("begun_ms", "day_ms")).alias("weight"),
        )
    )


def _part(so_far: str) -> Column:
    """The part of the busy time up to some weight, in whole milliseconds; a product has more than 64 bits."""
    return F.expr(
        f"case when whole = 0 then 0L else cast(coalesce(whole_busy_ms, 0) as decimal(20)) * cast({so_far} as "
        "decimal(18)) div cast(whole as decimal(18)) end"
    )
