"""Capacity for the day after the last: requests, and workers busy at once, by class of keys and hour of the day.

Seasonal: the mean of the same hour on earlier days, of the same weekday once the history has two of it. Days and hours
without requests count as zero; a first or last day that the history holds only in part counts as it is.

The upper bound is one that one hour in twenty exceeds, if days go on to differ as they did: from the variance between
days, taken to be no less than that of calls that come by chance, and larger the fewer days there are. The column
`days_of_history` says how many days an hour was taken from: with one, nothing is known of how days differ.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- the usual name for it

from osrdyne_pipeline.schemas import FORECAST
from osrdyne_pipeline.silver.days import HOUR_MS

#: With fewer weeks of history than this, the days of the week are taken to be alike.
WEEKS = 2
#: Standard deviations above the mean that one in twenty exceeds.
BOUND = 1.645


def forecast(demand: DataFrame, classes: DataFrame) -> DataFrame:
    """Return FORECAST of DEMAND and KEY_CLASSES; no rows without demand."""
    observed = _observed(demand, classes)
    mean, workers = F.col("mean"), F.col("mean_workers")
    # The mean itself is uncertain, too: it comes from these days alone.
    unsure = 1 + 1 / F.col("days")
    requests_variance = F.greatest(F.col("variance"), mean) * unsure
    workers_variance = F.col("workers_variance") * unsure + workers
    return (
        observed.withColumn("requests", mean)
        .withColumn("requests_high", mean + BOUND * F.sqrt(requests_variance))
        .withColumn("workers", workers)
        .withColumn("workers_high", workers + BOUND * F.sqrt(workers_variance))
        .withColumn("days_of_history", F.col("days"))
        .select(*FORECAST.names)
    )


def _observed(demand: DataFrame, classes: DataFrame) -> DataFrame:
    """One row a class and hour of the day to come: mean and variance over the days of the history that count for it."""
    per_hour = (
        demand.join(classes.select("key", "class"), on="key", how="inner")
        .groupBy("class", "day", F.expr(f"int(hour_ms div {HOUR_MS} % 24)").alias("hour"))
        .agg(F.sum("requests").alias("requests"), F.sum("run_ms").alias("run_ms"))
    )
    history = demand.agg(F.min("day").alias("first"), F.max("day").alias("last")).where("first is not null")
    days = (
        history.withColumn("next", F.date_add("last", 1))
        .withColumn("all", F.datediff("last", "first") + 1)
        .withColumn("weekly", F.col("all") >= 7 * WEEKS)
        .withColumn("days", F.when(F.col("weekly"), F.floor(F.col("all") / 7)).otherwise(F.col("all")).cast("long"))
    )
    grid = (
        classes.select("class")
        .distinct()
        .crossJoin(F.broadcast(days))
        .withColumn("hour", F.explode(F.sequence(F.lit(0), F.lit(23))))
    )
    joined = grid.join(per_hour.withColumnRenamed("day", "on"), on=["class", "hour"], how="left")
    alike = F.col("on").isNotNull() & (~F.col("weekly") | (F.datediff("next", "on") % 7 == 0))
    return (
        joined.groupBy("class", "hour", "next", "days")
        # In the order of their days, so that floating-point sums are equal each time, to the last bit.
        .agg(F.sort_array(F.collect_list(F.when(alike, F.struct("on", "requests", "run_ms")))).alias("hours"))
        .withColumn("counts", F.transform("hours", lambda hour: hour["requests"].cast("double")))
        .withColumn("busy", F.transform("hours", lambda hour: hour["run_ms"] / F.lit(HOUR_MS)))
        .withColumn("mean", _mean("counts"))
        .withColumn("mean_workers", _mean("busy"))
        .withColumn("variance", _variance("counts", "mean"))
        .withColumn("workers_variance", _variance("busy", "mean_workers"))
        .withColumnRenamed("next", "day")
    )


def _total(values: Column) -> Column:
    return F.aggregate(values, F.lit(0.0), lambda sum_, value: sum_ + value)


def _mean(values: str) -> Column:
    return _total(F.col(values)) / F.col("days")


def _variance(values: str, mean: str) -> Column:
    """Variance of a sample, days without a value being zero; zero where there is but one day."""
    squares = F.transform(values, lambda value: (value - F.col(mean)) * (value - F.col(mean)))
    empty_days = (F.col("days") - F.size(values)) * F.col(mean) * F.col(mean)
    return F.when(F.col("days") > 1, (_total(squares) + empty_days) / (F.col("days") - 1)).otherwise(0.0)
