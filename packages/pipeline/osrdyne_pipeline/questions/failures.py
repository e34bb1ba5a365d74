"""Failures and poison, grouped into causes: what was answered, how the workers ended, and what the message looked like.

A failure is a request that ended other than `ok`. How its workers ended is read from the events, which do not say it
outright:

- `answered`: a worker finished it, and said so
- `none`: no worker was handed it
- `gave back`: workers gave it back each time
- `hung`: the daemon stopped the group as stuck while a worker had it
- `crashed`: a worker, or a group, of its key started again after the first hand-out and within a minute of the end
- `silent`: it was not finished, and nothing started again: held too long, or its events were lost

A replica that an autoscaler added meanwhile looks like a worker that started again.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 -- the usual name for it

from osrdyne_pipeline.schemas import FAILURES
from osrdyne_protocol import events as names
from osrdyne_protocol import statuses

#: A crash on the last hand-out is followed by a new start, which the daemon's back-off puts off, and the dead letter
#: does not wait for.
NOTICE_MS = 60_000
#: How the daemon's reason begins when it stops a group that takes no requests.
_STUCK = "stuck"
#: The longest reason or shape in the table, in characters.
_LENGTH = 80
_CAUSE = ("reason", "worker_exit", "shape")


def failures(requests: DataFrame, events: DataFrame) -> DataFrame:
    """Return FAILURES of REQUESTS and the EVENTS that they were made of."""
    failed = requests.where(F.col("outcome") != statuses.OK).where("done_ms is not null")
    seen_ms = F.struct("seen_ms", "key", "request_id")
    return (
        _with_signs(failed, events)
        .withColumn("reason", _fingerprint("outcome"))
        .withColumn("worker_exit", _worker_exit())
        .withColumn("shape", _shape())
        .groupBy(*_CAUSE)
        .agg(
            F.count("*").alias("requests"),
            F.count_distinct("key").alias("keys"),
            F.min("done_ms").alias("first_ms"),
            F.max("done_ms").alias("last_ms"),
            F.min(seen_ms).alias("example"),
        )
        .withColumn("cause", F.substring(F.sha2(F.concat_ws("\n", *_CAUSE), 256), 1, 12))
        .withColumn("example_key", F.col("example.key"))
        .withColumn("example_request_id", F.col("example.request_id"))
        .select(*FAILURES.names)
    )


def _with_signs(failed: DataFrame, events: DataFrame) -> DataFrame:
    """Add `restart_ms`, the last start on the key until the notice is over, and `stuck_ms`, the last stop as stuck."""
    started = F.col("event").isin(names.STARTED, names.GROUP_STARTED)
    stuck = (F.col("event") == names.GROUP_STOPPED) & F.startswith("outcome", F.lit(_STUCK))
    signs = (
        events.where(F.col("event").isin(names.STARTED, names.GROUP_STARTED, names.GROUP_STOPPED))
        .where(started | stuck)
        .select(
            "key",
            F.col("time_ms").alias("at_ms"),
            F.lit(0).alias("sign"),
            F.when(started, F.col("time_ms")).alias("restart_ms"),
            F.when(stuck, F.col("time_ms")).alias("stuck_ms"),
        )
    )
    asked = failed.select("*", (F.col("done_ms") + NOTICE_MS).alias("at_ms"), F.lit(1).alias("sign"))
    so_far = (
        Window.partitionBy("key").orderBy("at_ms", "sign").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    return (
        asked.unionByName(signs, allowMissingColumns=True)
        .withColumn("restart_ms", F.max("restart_ms").over(so_far))
        .withColumn("stuck_ms", F.max("stuck_ms").over(so_far))
        .where("sign = 1")
    )


def _worker_exit() -> Column:
    return (
        F.when(F.col("ended_by") == names.FINISHED, "answered")
        .when(F.col("deliveries") == 0, "none")
        .when(F.col("deliveries") == F.col("returns"), "gave back")
        .when(F.col("stuck_ms") > F.col("received_ms"), "hung")
        .when(F.col("restart_ms") > F.col("received_ms"), "crashed")
        .otherwise("silent")
    )


def _shape() -> Column:
    """Shape of key and request id: what a cause has in common without naming anyone."""
    length = (
        F.when(F.length("key") <= 16, "short key").when(F.length("key") <= 64, "middling key").otherwise("long key")
    )
    return F.concat_ws(" ", _fingerprint("key"), F.lit("/"), _fingerprint("request_id"), F.lit("/"), length)


def _fingerprint(column: str) -> Column:
    """Text with what differs each time taken out: hexadecimal identities are H, numbers N."""
    hexadecimal = r"(?i)(?<![a-z0-9])(?=[a-f]*[0-9])[0-9a-f]{8,}(?![a-z0-9])"
    return F.substring(
        F.regexp_replace(F.regexp_replace(column, hexadecimal, "H"), "[0-9]+", "N"),
        1,
        _LENGTH,
    )
