"""Heavy and rare keys: how requests spread over keys, and which keys a delay can help.

`rare`: fewer than ten requests in all, or half of its gaps a day or longer: no delay that anyone pays for bridges them.
`heavy`: of the others, the keys with most requests that together make half of all. `steady`: the rest.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 -- the usual name for it

from osrdyne_pipeline.questions.percentiles import percentile
from osrdyne_pipeline.schemas import KEY_CLASSES
from osrdyne_pipeline.silver.days import DAY_MS

HEAVY, STEADY, RARE = "heavy", "steady", "rare"

#: With fewer requests than this, too little is known about a key's gaps.
FEWEST = 10
#: A key of which half the gaps are as long as this, in milliseconds, is rare.
RARE_GAP_MS = DAY_MS
#: Heavy keys together make this share of all requests.
HEAVY_SHARE = 0.5


def key_classes(requests: DataFrame) -> DataFrame:
    """Return KEY_CLASSES of REQUESTS. `rank` 1 is the key with most requests; ties go by the key."""
    in_time = Window.partitionBy("key").orderBy("seen_ms")
    gaps = requests.select(
        "key",
        "cold",
        "day",
        "run_ms",
        (F.col("seen_ms") - F.lag("seen_ms").over(in_time)).alias("gap_ms"),
        (~F.col("day").eqNullSafe(F.lag("day").over(in_time))).alias("new_day"),
    )
    by_key = gaps.groupBy("key").agg(
        F.count("*").alias("requests"),
        F.count_if("cold").alias("cold"),
        F.count_if("new_day").alias("days"),
        F.coalesce(F.sum("run_ms"), F.lit(0)).alias("run_ms"),
        percentile("gap_ms", 0.5).alias("median_gap_ms"),
    )
    # One row a key from here on: few enough for one task.
    ranked = Window.orderBy(F.desc("requests"), "key")
    so_far = ranked.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    all_keys = Window.orderBy(F.desc("requests"), "key").rowsBetween(
        Window.unboundedPreceding, Window.unboundedFollowing
    )
    return (
        by_key.withColumn("rank", F.row_number().over(so_far).cast("long"))
        .withColumn("up_to", F.sum("requests").over(so_far))
        .withColumn("all", F.sum("requests").over(all_keys))
        .withColumn("share", F.col("requests") / F.col("all"))
        .withColumn("class", _class())
        .select(*KEY_CLASSES.names)
    )


def _class() -> Column:
    rare = (F.col("requests") < FEWEST) | (F.col("median_gap_ms") >= RARE_GAP_MS)
    heavy = F.col("up_to") - F.col("requests") < F.col("all") * HEAVY_SHARE
    return F.when(rare, RARE).when(heavy, HEAVY).otherwise(STEADY)
