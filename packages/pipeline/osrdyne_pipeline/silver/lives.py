"""One row a life of a worker group: when it began, was ready, was unbound and ended, and how busy it was.

A run is the last hand-out of a request that is done with, from `request-received` to its end. It belongs to the life in
which it began, and is busy time until that life ends; runs at the same time count once. Runs whose end is not known
count as requests, and not as busy time.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 -- the usual name for it

from osrdyne_pipeline.schemas import LIVES
from osrdyne_pipeline.silver.days import DAY_MS, day_of
from osrdyne_pipeline.spark.rows import of_arrow
from osrdyne_protocol import events as names

#: Kinds of what happens to a key, in the order in which those of one millisecond are read.
_CLOSE, _OPEN, _BOUND, _UNBOUND, _STARTED, _RUN = range(6)

_KINDS = {
    names.GROUP_STOPPED: (_CLOSE,),
    names.QUEUE_DELETED: (_CLOSE,),
    # A start ends the life before, if nothing else has.
    names.GROUP_STARTED: (_CLOSE, _OPEN),
    names.QUEUE_READY: (_BOUND,),
    names.UNBOUND: (_UNBOUND,),
    names.STARTED: (_STARTED,),
}

_LIFE = ("key", "life")


def lives(events: DataFrame, requests: DataFrame) -> DataFrame:
    """Return LIVES of EVENTS and the REQUESTS that were made of them."""
    happened = _numbered(_signs(events).unionByName(_runs(requests)))
    until = events.agg(F.max("time_ms").alias("history_ms"))
    return _rows(_joined(_by_day(_disjoint(happened))).crossJoin(F.broadcast(until)))


def _signs(events: DataFrame) -> DataFrame:
    kinds = F.create_map(
        *(part for event, kinds in _KINDS.items() for part in (F.lit(event), F.array(*map(F.lit, kinds))))
    )
    return events.where(F.col("event").isin(*_KINDS)).select(
        "key",
        F.col("time_ms").alias("at_ms"),
        F.explode(kinds[F.col("event")]).alias("kind"),
        F.lit(None).cast("long").alias("end_ms"),
        F.when(F.col("event") == names.STARTED, F.col("worker_id")).alias("worker_id"),
        F.lit(False).alias("warm"),
    )


def _runs(requests: DataFrame) -> DataFrame:
    return requests.where("received_ms is not null").select(
        "key",
        F.coalesce(F.col("done_ms") - F.col("run_ms"), "received_ms").alias("at_ms"),
        F.lit(_RUN).alias("kind"),
        F.col("done_ms").alias("end_ms"),
        "worker_id",
        (~F.col("cold")).alias("warm"),
    )


def _numbered(happened: DataFrame) -> DataFrame:
    """Add `life`, the number of the key's life; drop what belongs to none.

    A warm request before any start or stop of a key's group shows that a group ran before the history begins.
    """
    in_time = Window.partitionBy("key").orderBy("at_ms", "kind", F.desc("warm"))
    so_far = in_time.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    unreported = F.count_if(F.col("kind").isin(_CLOSE, _OPEN)).over(so_far) == 0
    runs_before = F.col("kind").eqNullSafe(_RUN) & F.col("warm") & F.col("unreported")
    first = F.count_if("runs_before").over(so_far) == 1
    opens = (F.col("kind") == _OPEN) | (F.col("runs_before") & F.col("first"))
    return (
        happened.withColumn("unreported", unreported)
        .withColumn("runs_before", runs_before)
        .withColumn("first", first)
        .withColumn("opens", opens)
        .withColumn("life", F.count_if("opens").over(so_far))
        .where("life > 0")
    )


def _disjoint(happened: DataFrame) -> DataFrame:
    """Cut runs so that none overlaps one before it or the end of its life; `from_ms` and `to_ms` are what is left."""
    life = Window.partitionBy(*_LIFE)
    whole = life.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    before = life.orderBy("at_ms", "kind").rowsBetween(Window.unboundedPreceding, -1)
    closed = F.when(F.col("kind") == _CLOSE, F.col("at_ms"))
    return (
        happened.withColumn("stopped_ms", F.min(closed).over(whole))
        # What the next life begins with comes before its `group-started`.
        .where((F.col("kind") == _RUN) | F.coalesce(F.col("at_ms") <= F.col("stopped_ms"), F.lit(True)))
        .withColumn("from_ms", F.greatest("at_ms", F.max("end_ms").over(before)))
        .withColumn("to_ms", F.least("end_ms", "stopped_ms"))
        .withColumn("busy", F.col("end_ms").isNotNull() & (F.col("from_ms") < F.col("to_ms")))
    )


def _by_day(happened: DataFrame) -> DataFrame:
    """One row a life and day on which something of it happened; `busy_ms` is that day's part."""
    first, last = (F.expr(f"{column} div {DAY_MS}") for column in ("from_ms", "(to_ms - 1)"))
    days = F.when(F.col("busy"), F.sequence(first, last)).otherwise(F.array(F.expr(f"at_ms div {DAY_MS}")))
    # Of a run that spans midnight, only its first row counts as what happened.
    split = happened.withColumn("days", days).select("*", F.posexplode("days").alias("part", "day_number"))
    begin, end = F.col("day_number") * DAY_MS, (F.col("day_number") + 1) * DAY_MS
    busy_ms = F.when(F.col("busy"), F.least("to_ms", end) - F.greatest("from_ms", begin)).otherwise(0)
    whole = F.col("part") == 0

    def first_of(kind: int) -> Column:
        return F.min(F.when(F.col("kind") == kind, F.col("at_ms")))

    return split.groupBy(*_LIFE, "day_number").agg(
        F.sum(busy_ms).alias("busy_ms"),
        F.min(F.when(F.col("opens"), F.col("at_ms"))).alias("started_ms"),
        first_of(_STARTED).alias("shown_ms"),
        first_of(_RUN).alias("handed_ms"),
        F.max(F.when(F.col("kind") == _BOUND, F.col("at_ms"))).alias("bound_ms"),
        F.max(F.when(F.col("kind") == _UNBOUND, F.col("at_ms"))).alias("unbound_ms"),
        F.min("stopped_ms").alias("stopped_ms"),
        F.count_if(whole & (F.col("kind") == _RUN)).alias("requests"),
        F.collect_set("worker_id").alias("workers"),
    )


def _joined(by_day: DataFrame) -> DataFrame:
    return by_day.groupBy(*_LIFE).agg(
        F.min("started_ms").alias("started_ms"),
        F.coalesce(F.min("shown_ms"), F.min("handed_ms")).alias("ready_ms"),
        F.max("bound_ms").alias("bound_ms"),
        F.max("unbound_ms").alias("unbound_ms"),
        F.min("stopped_ms").alias("stopped_ms"),
        F.sum("busy_ms").alias("busy_ms"),
        F.sum("requests").cast("int").alias("requests"),
        F.size(F.array_distinct(F.flatten(F.collect_list("workers")))).alias("workers"),
        F.map_from_entries(F.collect_list(F.struct("day_number", "busy_ms"))).alias("busy_on"),
    )


def _rows(lives: DataFrame) -> DataFrame:
    first = F.expr(f"started_ms div {DAY_MS}")
    last = F.greatest(first, F.expr(f"(end_ms - 1) div {DAY_MS}"))
    bound_again = F.coalesce(F.col("bound_ms") >= F.col("unbound_ms"), F.lit(False))
    return (
        lives.withColumn("end_ms", F.greatest("started_ms", F.coalesce("stopped_ms", "history_ms")))
        .withColumn("days", F.transform(F.sequence(first, last), _day))
        .select(
            "key",
            "started_ms",
            "ready_ms",
            F.when(~bound_again, F.col("unbound_ms")).alias("unbound_ms"),
            "stopped_ms",
            "busy_ms",
            "requests",
            "workers",
            F.col("days").cast(of_arrow(LIVES)["days"].dataType).alias("days"),
            day_of("started_ms").alias("day"),
        )
        .select(*LIVES.names)
    )


def _day(number: Column) -> Column:
    """One day of a life, as LIVES.days has it."""
    up_ms = F.least("end_ms", (number + 1) * DAY_MS) - F.greatest("started_ms", number * DAY_MS)
    return F.struct(
        F.date_from_unix_date(number.cast("int")).alias("day"),
        up_ms.alias("up_ms"),
        F.coalesce(F.try_element_at("busy_on", number), F.lit(0)).cast("long").alias("busy_ms"),
    )
