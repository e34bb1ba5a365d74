"""Causes, as facts say them: how workers ended, why they could not be started, and what handlers raised.

The class of an error is read from the output of a worker: of the last line that begins as Python ends a traceback,
`FileNotFoundError: ...`. Of a handler it is what the worker said in its event. What is not said stays null.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- the usual name for it

from osrdyne_pipeline.schemas import CAUSES, STARTS
from osrdyne_protocol import events as names
from osrdyne_protocol import statuses

#: How a line begins that says which error ended a program.
ERROR_CLASS = r"^(([A-Za-z_][A-Za-z0-9_]*\.)*[A-Z][A-Za-z0-9_]*(Error|Exception|Exit|Interrupt))(:|\z)"
#: Longest example, in characters, and longest word of how and class.
LONGEST = 600
_HOW, _CLASS = 80, 100
#: How the reason of a worker begins that the daemon stopped because it did not work.
_STUCK = "stopped: stuck"


def causes(events: DataFrame) -> DataFrame:
    """Return CAUSES of EVENTS."""
    handler = F.col("event") == names.FINISHED
    stuck = (F.col("outcome") == "stopped") & F.startswith("detail", F.lit(_STUCK))
    how = F.substring("outcome", 1, _HOW)
    raised = F.regexp_extract(F.col("raised"), ERROR_CLASS, 1)
    error = F.substring(F.when(handler, F.col("error")).otherwise(raised), 1, _CLASS)
    example = F.substring(F.coalesce("raised", "last_line", "detail"), 1, LONGEST)
    failed = (handler & (F.col("outcome") == statuses.ERROR)) | F.col("event").isin(
        names.WORKER_ENDED, names.START_FAILED
    )
    return (
        events.where(failed)
        .withColumn("raised", _last_line(ERROR_CLASS))
        .withColumn("last_line", _last_line("[^ \\t\\r]"))
        .select(
            "key",
            F.when(handler, "handler-error").otherwise(F.col("event")).alias("what"),
            F.when(stuck, "stuck").when(how != "", how).otherwise("unknown").alias("how"),
            F.when(error != "", error).alias("error"),
            F.when(~handler & F.col("began").isin(0, 1), F.col("began") == 1).alias("began"),
            "time_ms",
            "event_id",
            F.when(~handler, example).alias("example"),
            F.when(~handler, F.substring("log", 1, LONGEST)).alias("log"),
            "day",
        )
        .groupBy("key", "what", "how", "error", "began", "day")
        .agg(
            F.count("*").alias("times"),
            F.max("time_ms").alias("last_ms"),
            F.max(F.struct("time_ms", "event_id", "example", "log")).alias("latest"),
        )
        .withColumn("example", F.col("latest.example"))
        .withColumn("log", F.col("latest.log"))
        .select(*CAUSES.names)
    )


def _last_line(pattern: str) -> Column:
    """The last line of a worker's output that matches; null where there is none."""
    lines = F.filter(F.split("output", "\n", -1), lambda line: F.rlike(line, F.lit(pattern)))
    return F.try_element_at(lines, F.lit(-1))


def starts(events: DataFrame) -> DataFrame:
    """Return STARTS of EVENTS. A worker that was stopped on purpose before it had started did not fail."""
    began = F.col("began").eqNullSafe(1)
    on_purpose = F.col("outcome").eqNullSafe("stopped") & ~F.coalesce(
        F.startswith("detail", F.lit(_STUCK)), F.lit(False)
    )
    ended = (F.col("event") == names.WORKER_ENDED) & F.col("began").eqNullSafe(0) & ~on_purpose
    reported = events.where(
        F.col("event").isin(names.STARTED, names.REQUEST_RECEIVED, names.WORKER_ENDED, names.START_FAILED)
    ).select(
        "key",
        "day",
        "time_ms",
        (F.col("event") == names.STARTED).alias("started"),
        (F.col("event").isin(names.STARTED, names.REQUEST_RECEIVED) | began).alias("good"),
        ((F.col("event") == names.START_FAILED) | ended).alias("failed"),
    )
    by_day = (
        reported.where("good or failed")
        .groupBy("key", "day")
        .agg(F.count_if("started").alias("started"), F.max(F.when(F.col("good"), F.col("time_ms"))).alias("good_ms"))
    )
    bad = reported.where("failed").select("key", "day", F.col("time_ms").alias("failed_at"))
    since = F.col("failed_at").isNotNull() & F.coalesce(F.col("failed_at") > F.col("good_ms"), F.lit(True))
    return (
        by_day.join(bad, ["key", "day"], "left")
        .groupBy("key", "started", "good_ms", "day")
        .agg(
            F.count("failed_at").alias("failed"),
            F.count_if(since).alias("failed_since"),
            F.max("failed_at").alias("failed_ms"),
        )
        .select(*STARTS.names)
    )
