"""One row a request: its events joined, its time taken apart into waits and work.

Per key and request id, in the order of time: an `orphan-seen` or `request-received` after an end begins another request
of the same id; all other events belong to the request before them. A daemon records `forwarded` once the broker has
confirmed it, when a quick worker may have answered already; a second worker may finish what the first one has.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 -- the usual name for it

from osrdyne_pipeline.schemas import REQUESTS
from osrdyne_pipeline.silver.days import DAY_MS, day_of
from osrdyne_protocol import events as names

#: Events of a request, in the order in which those of one millisecond are read.
_OF_A_REQUEST = (
    names.ORPHAN_SEEN,
    names.FORWARDED,
    names.REQUEST_RECEIVED,
    names.FINISHED,
    names.DEAD_LETTERED,
)
#: Events that begin or end a group of workers, and so what its first `started` is counted from.
_BOUNDARIES = (names.GROUP_STARTED, names.GROUP_STOPPED, names.QUEUE_DELETED)
#: What comes so long after the last event of its id is another request, also where the first one's end was lost.
_FORGOTTEN_MS = DAY_MS

_REQUEST = ("key", "request_id", "number")


def requests(events: DataFrame) -> DataFrame:
    """Return REQUESTS of EVENTS."""
    return _in_parts(_with_ready(_joined(_numbered(_of_requests(events))), events))


def _of_requests(events: DataFrame) -> DataFrame:
    """Events of requests. Without a request id only a hand-out counts, as a request of its own."""
    given = F.when(F.col("request_id") != "", F.col("request_id"))
    received = F.col("event") == names.REQUEST_RECEIVED
    return (
        events.where(F.col("event").isin(*_OF_A_REQUEST))
        .where(given.isNotNull() | received)
        .select(
            "key",
            F.coalesce(given, F.concat(F.lit("~"), F.col("event_id"))).alias("request_id"),
            (F.array_position(F.array(*map(F.lit, _OF_A_REQUEST)), F.col("event")) - 1).cast("int").alias("kind"),
            "time_ms",
            "outcome",
            "worker_id",
            F.when(F.col("caller") != "", F.col("caller")).alias("caller"),
        )
    )


def _is(event: str) -> Column:
    return F.col("kind") == _OF_A_REQUEST.index(event)


def _gave_back() -> Column:
    return _is(names.FINISHED) & F.col("outcome").eqNullSafe(names.REQUEUED)


def _ends() -> Column:
    return _is(names.DEAD_LETTERED) | (_is(names.FINISHED) & ~F.col("outcome").eqNullSafe(names.REQUEUED))


def _numbered(rows: DataFrame) -> DataFrame:
    """Add `number`: counts the requests of one id, from 1, and says to which of them an event belongs."""
    in_time = Window.partitionBy("key", "request_id").orderBy("time_ms", "kind", "outcome", "worker_id")
    before = in_time.rowsBetween(Window.unboundedPreceding, -1)
    so_far = in_time.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    begins = _is(names.ORPHAN_SEEN) | _is(names.REQUEST_RECEIVED)
    had_ended = F.last(F.when(begins, False).when(_ends(), True), ignorenulls=True).over(before)
    forgotten = F.col("time_ms") - F.lag("time_ms").over(in_time) > _FORGOTTEN_MS
    begins_another = begins & F.coalesce(had_ended | forgotten, F.lit(False))
    return rows.withColumn("another", begins_another.cast("int")).withColumn(
        "number", F.sum("another").over(so_far) + 1
    )


def _joined(rows: DataFrame) -> DataFrame:
    """One row a request: its moments, how often it was handed out and given back, and what its end said."""
    time_ms = F.col("time_ms")
    end = F.struct("time_ms", "kind", "outcome", "worker_id")
    finished = F.min(F.when(_ends() & _is(names.FINISHED), end))
    dead = F.min(F.when(_is(names.DEAD_LETTERED), end))
    received = F.when(_is(names.REQUEST_RECEIVED), time_ms)
    caller_at = F.struct("time_ms", "caller")
    return rows.groupBy(*_REQUEST).agg(
        F.min("time_ms").alias("seen_ms"),
        F.max(_is(names.ORPHAN_SEEN) | _is(names.FORWARDED)).alias("cold"),
        F.max(F.when(_is(names.FORWARDED), time_ms)).alias("forwarded_ms"),
        F.min(received).alias("received_ms"),
        F.max(F.when(_is(names.REQUEST_RECEIVED), F.struct("time_ms", "worker_id"))).alias("last"),
        F.count(received).cast("int").alias("deliveries"),
        F.count_if(_gave_back()).cast("int").alias("returns"),
        finished.alias("finished"),
        dead.alias("dead"),
        F.min(F.when(_is(names.ORPHAN_SEEN) & F.col("caller").isNotNull(), caller_at)).alias("woke"),
        F.min(F.when(_is(names.REQUEST_RECEIVED) & F.col("caller").isNotNull(), caller_at)).alias("asked"),
    )


def _with_ready(requests: DataFrame, events: DataFrame) -> DataFrame:
    """Add `ready_ms`: the first `started` of the group that a request was first handed to; null where none is known."""
    signs = events.where(F.col("event").isin(names.STARTED, *_BOUNDARIES)).select(
        "key",
        F.col("time_ms").alias("at_ms"),
        (F.col("event") == names.STARTED).cast("int").alias("sign"),
        F.when(F.col("event") == names.STARTED, F.col("time_ms")).alias("started_ms"),
    )
    done_ms = F.least("finished.time_ms", "dead.time_ms")
    waiting = requests.select(
        "*",
        done_ms.alias("done_ms"),
        F.coalesce("received_ms", done_ms, "seen_ms").alias("at_ms"),
        F.lit(2).alias("sign"),
    )
    so_far = (
        Window.partitionBy("key").orderBy("at_ms", "sign").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    group = Window.partitionBy("key", "group").rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    return (
        waiting.unionByName(signs, allowMissingColumns=True)
        .withColumn("group", F.count_if(F.col("sign") == 0).over(so_far))
        .withColumn("ready_ms", F.min("started_ms").over(group))
        .where("sign = 2")
    )


def _in_parts(requests: DataFrame) -> DataFrame:
    """Take the time of each request apart. Moments that clocks or lost events put out of order are moved into it."""
    in_hand_ms = F.least(F.coalesce("last.time_ms", "done_ms"), F.col("done_ms"))
    forwarded_ms = F.when(F.col("cold"), _within("forwarded_ms", "seen_ms", "in_hand_ms")).otherwise(F.col("seen_ms"))
    ready_ms = F.when(F.col("cold"), _within("ready_ms", "left_ms", "in_hand_ms")).otherwise(F.col("left_ms"))
    done = F.col("done_ms").isNotNull()
    by_worker = F.col("finished").isNotNull()
    moments = (
        requests.withColumn("in_hand_ms", in_hand_ms)
        .withColumn("left_ms", forwarded_ms)
        .withColumn("begun_ms", ready_ms)
    )
    return moments.select(
        "key",
        "request_id",
        F.col("number").cast("int").alias("number"),
        "cold",
        "seen_ms",
        "received_ms",
        "done_ms",
        F.when(done, F.col("left_ms") - F.col("seen_ms")).alias("orphan_ms"),
        F.when(done, F.col("begun_ms") - F.col("left_ms")).alias("start_ms"),
        F.when(done, F.col("in_hand_ms") - F.col("begun_ms")).alias("queue_ms"),
        F.when(done, F.col("done_ms") - F.col("in_hand_ms")).alias("run_ms"),
        F.when(done, F.col("done_ms") - F.col("seen_ms")).alias("total_ms"),
        "deliveries",
        F.when(by_worker, F.col("finished.outcome")).otherwise(F.col("dead.outcome")).alias("outcome"),
        F.coalesce("finished.worker_id", "last.worker_id").alias("worker_id"),
        "returns",
        F.when(by_worker, names.FINISHED).when(done, names.DEAD_LETTERED).alias("ended_by"),
        # Of a request that the daemon forwarded, a worker knows the daemon's user only.
        F.when(F.col("cold"), F.col("woke.caller")).otherwise(F.col("asked.caller")).alias("caller"),
        day_of("seen_ms").alias("day"),
    ).select(*REQUESTS.names)


def _within(column: str, low: str, high: str) -> Column:
    """The moment in `column`, not before `low` and not after `high`; `high` where it is not known."""
    return F.greatest(F.col(low), F.least(F.coalesce(column, high), F.col(high)))
