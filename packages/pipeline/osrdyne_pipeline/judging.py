"""What is an event of ours, and what is not and why: RAW in, rows with a verdict out. Pure."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- everybody's name for it

from osrdyne_pipeline.schemas import BRONZE, REJECTS
from osrdyne_protocol import events
from osrdyne_protocol.keys import SHORT_STRING_BYTES

#: Milliseconds by which an event may be later than now: clocks differ.
ALLOWANCE_MS = 300_000

#: Milliseconds since the epoch at which 2010 began. An event that is older has its time from a clock that was reset: to
#: 1970, to 2000, or to when a machine was made. One such event would make the history, and every sum of a group's
#: hours, many years long. Histories that were made for the examples are of 2013.
EARLIEST_MS = 1_262_304_000_000

#: Events that the protocol knows.
KNOWN = events.ACTIVITY | events.LIFECYCLE | events.BY_A_PERSON | {events.STOPPING, events.INTERRUPTED}

#: Reason of a reject -> what it means. The first that holds is given; the sources give the first five.
REASONS = {
    "gap": "Retention removed these events before they were read.",
    "unreadable_offset": "The message at this offset of the stream cannot be received.",
    "truncated_file": "The file ends too early or is damaged; what comes after this row is lost.",
    "unreadable": "The line or file could not be taken apart.",
    "invalid_key": "The key is missing, is not UTF-8, is longer than 255 bytes or holds NUL.",
    "no_event": "The message does not say which event it is.",
    "unknown_event": "The protocol has no such event.",
    "no_time": "The event does not say when it was.",
    "implausible_time": "The event's time is before 2010, or is not a time.",
    "clock_skew": "The event is later than the time at which it was read, by more than clocks may differ.",
    "negative_duration": "The request took less than no time.",
}


def judge(raw: DataFrame, *, now_ms: int, allowance_ms: int = ALLOWANCE_MS) -> DataFrame:
    """Return rows of RAW with their `reason`, null for a good event, and what BRONZE has beyond them.

    `now_ms` is when the rows were read, in milliseconds since the epoch. The `day` of a reject is null.
    """
    reason = _reason(now_ms + allowance_ms)
    day = F.date_add(F.lit("1970-01-01").cast("date"), F.floor(F.col("time_ms") / 86_400_000).cast("int"))
    without_id = F.col("event_id").isNull() | (F.col("event_id") == "")
    own_id = F.concat_ws(":", F.col("source"), F.col("offset").cast("string"))
    return raw.withColumn("reason", reason).select(
        *(F.col(name) for name in BRONZE.names if name not in ("event_id", "day")),
        F.when(without_id & F.col("reason").isNull(), own_id).otherwise(F.col("event_id")).alias("event_id"),
        F.when(F.col("reason").isNull(), day).alias("day"),
        F.col("reason"),
        F.col("raw"),
    )


def accepted(judged: DataFrame) -> DataFrame:
    """Return the rows of BRONZE."""
    return judged.where(F.col("reason").isNull()).select(*BRONZE.names)


def rejected(judged: DataFrame) -> DataFrame:
    """Return the rows of REJECTS."""
    return judged.where(F.col("reason").isNotNull()).select(*REJECTS.names)


def _reason(latest_ms: int) -> Column:
    """The first reason that holds, as a column."""
    key, event, time_ms = F.col("key"), F.col("event"), F.col("time_ms")
    said = F.substring_index(F.col("problem"), ":", 1)
    bad_key = key.isNull() | (F.octet_length(key) > SHORT_STRING_BYTES) | key.contains("\0")
    rules = [
        (F.col("problem").isNotNull(), F.when(said.isin(*REASONS), said).otherwise("unreadable")),
        (event.isNull() | (event == ""), F.lit("no_event")),
        (~event.isin(*sorted(KNOWN)), F.lit("unknown_event")),
        (bad_key, F.lit("invalid_key")),
        (time_ms.isNull(), F.lit("no_time")),
        (time_ms < EARLIEST_MS, F.lit("implausible_time")),
        (time_ms > latest_ms, F.lit("clock_skew")),
        (F.col("duration_ms") < 0, F.lit("negative_duration")),
    ]
    first, *others = rules
    return reduce(lambda column, rule: column.when(*rule), others, F.when(*first))
