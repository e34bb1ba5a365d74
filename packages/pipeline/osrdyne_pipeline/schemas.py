"""The tables' schemas: what each layer holds, one row a what, and in which unit. Enforced where tables are written.

Times are integer milliseconds since the Unix epoch, durations integer milliseconds: what travels in the events
(osrdyne_protocol.headers), and what sums without rounding. A day is a day in UTC.
"""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)


def _table(*fields: StructField) -> StructType:
    return StructType(list(fields))


def _text(name: str, required: bool = False) -> StructField:
    return StructField(name, StringType(), not required)


def _long(name: str, required: bool = False) -> StructField:
    return StructField(name, LongType(), not required)


def _day(required: bool = True) -> StructField:
    return StructField("day", DateType(), not required)


#: One row a message as a source gives it: a stream's message or a file's row, taken apart, not judged.
#: `source` is the stream's or the file's name, `offset` the stream's offset or the number of the row in its file.
#: Where a message could not be taken apart, `problem` says why, and `raw` holds what was there, cut off.
RAW = _table(
    _text("source", required=True),
    _long("offset", required=True),
    _text("key"),
    _text("event"),
    _text("event_id"),
    _long("time_ms"),
    _text("worker_id"),
    _text("request_id"),
    _text("outcome"),
    _long("duration_ms"),
    _text("problem"),
    StructField("raw", BinaryType()),
)

#: Bronze, one row an event as it came, duplicates included; partitioned by `day`, the day of `time_ms`.
#: An event without an id (a worker of somebody else's) has `source:offset` for one.
BRONZE = _table(
    _text("source", required=True),
    _long("offset", required=True),
    _text("key", required=True),
    _text("event", required=True),
    _text("event_id", required=True),
    _long("time_ms", required=True),
    _text("worker_id"),
    _text("request_id"),
    _text("outcome"),
    _long("duration_ms"),
    _day(),
)

#: One row a message that is not an event of ours, with the reason; see rejects.REASONS.
REJECTS = _table(
    _text("source", required=True),
    _long("offset", required=True),
    _text("reason", required=True),
    _text("key"),
    _text("event"),
    _text("event_id"),
    _long("time_ms"),
    StructField("raw", BinaryType()),
)

#: Silver, one row an event: bronze without duplicates (`event_id`), of which the row that sorts first stays.
EVENTS = BRONZE

#: Silver, one row a request: one `request_id` of one key, from when it was first seen to when it was done with.
#: A request id is the caller's and may come again: after an end, what follows is another request (`number`).
#: A request without an id has one row for each hand-out, under the id `~` and that event's: no more is known of it.
#:
#: The parts sum to the whole: orphan_ms + start_ms + queue_ms + run_ms = total_ms = done_ms - seen_ms.
#: - orphan: first `orphan-seen` to the last `forwarded`; 0 for a warm request
#: - start: from then until a worker of the group had shown `started`; 0 where one runs already
#: - queue: from then until the last `request-received`
#: - run: from then to the end
#: The wait of a warm request in its queue is not in the events: its first sign is `request-received`.
#: What has not happened ends its row: a request that nobody finished has no `done_ms`, and no parts.
REQUESTS = _table(
    _text("key", required=True),
    _text("request_id", required=True),
    StructField("number", IntegerType(), False),
    StructField("cold", BooleanType(), False),
    _long("seen_ms", required=True),
    #: The first hand-out to a worker. The last, whose run counts, was at `done_ms - run_ms`.
    _long("received_ms"),
    _long("done_ms"),
    _long("orphan_ms"),
    _long("start_ms"),
    _long("queue_ms"),
    _long("run_ms"),
    _long("total_ms"),
    #: Hand-outs to workers (`request-received`).
    StructField("deliveries", IntegerType(), False),
    #: What `finished` said, else what `dead-lettered` said, else null: not known (lost events, or not done yet).
    _text("outcome"),
    _text("worker_id"),
    #: Hand-outs that the worker gave back (`requeued`).
    StructField("returns", IntegerType()),
    #: The event that ended it: `finished` (by a worker) or `dead-lettered` (by the daemon).
    _text("ended_by"),
    _day(),
)

#: Silver, one row a life of a worker group: from `group-started` to `group-stopped`; `stopped_ms` is null while it
#: runs. Where no stop is told of (a crash), it ends at the key's next `group-started` or `queue-deleted`. One that
#: began before the history begins with its first warm request. `ready_ms` is the first `started` of a worker in it,
#: else its first hand-out. `unbound_ms` is when the key was unbound for the last time, null where it was bound again
#: since. `busy_ms` is the time in which at least one request that was handed out in it ran.
LIVES = _table(
    _text("key", required=True),
    _long("started_ms", required=True),
    _long("ready_ms"),
    _long("unbound_ms"),
    _long("stopped_ms"),
    _long("busy_ms", required=True),
    StructField("requests", IntegerType(), False),
    StructField("workers", IntegerType(), False),
    #: The life split at midnight; the parts sum to the whole. One that still runs counts up to the last event of all.
    StructField("days", ArrayType(_table(_day(False), _long("up_ms"), _long("busy_ms")))),
    _day(),
)

#: Gold: demand by key and hour. `hour_ms` is the hour's beginning.
DEMAND = _table(
    _text("key", required=True),
    _long("hour_ms", required=True),
    _long("requests", required=True),
    _long("cold", required=True),
    _long("run_ms", required=True),
    _day(),
)

#: Gold: cold starts by key and day, and what they cost callers: the wait until a worker began, beyond a warm request's.
COLD_STARTS = _table(
    _text("key", required=True),
    _long("requests", required=True),
    #: Requests that found no bound queue.
    _long("cold", required=True),
    #: Starts of the group; several cold requests may wait for one.
    _long("starts", required=True),
    _long("waited_ms", required=True),
    _long("worst_ms"),
    _long("p50_ms"),
    _long("p95_ms"),
    _day(),
)

#: Gold: the latency split by key and day: sums of each part over finished requests, cold and warm apart.
LATENCY = _table(
    _text("key", required=True),
    StructField("cold", BooleanType(), False),
    _long("requests", required=True),
    _long("orphan_ms", required=True),
    _long("start_ms", required=True),
    _long("queue_ms", required=True),
    _long("run_ms", required=True),
    _long("total_ms", required=True),
    _long("p50_ms"),
    _long("p95_ms"),
    _long("p99_ms"),
    _day(),
)

#: Gold: worker time by key and day, busy and idle: busy_ms + idle_ms = up_ms. A life that spans midnight counts in
#: both days.
WORKER_HOURS = _table(
    _text("key", required=True),
    _long("up_ms", required=True),
    _long("busy_ms", required=True),
    _long("idle_ms", required=True),
    _long("lives", required=True),
    _day(),
)

#: Gold: failures and poison by cause. `cause` is a fingerprint of reason, how workers ended, and shape of the message.
FAILURES = _table(
    _text("cause", required=True),
    _text("reason", required=True),
    _text("worker_exit", required=True),
    _text("shape", required=True),
    _long("requests", required=True),
    _long("keys", required=True),
    _long("first_ms", required=True),
    _long("last_ms", required=True),
    _text("example_key", required=True),
    _text("example_request_id", required=True),
)

#: Gold: heavy and rare keys. `class` is `heavy`, `steady` or `rare`; see questions.key_classes.
KEY_CLASSES = _table(
    _text("key", required=True),
    _text("class", required=True),
    _long("requests", required=True),
    _long("cold", required=True),
    _long("days", required=True),
    _long("run_ms", required=True),
    StructField("share", DoubleType(), False),
    _long("median_gap_ms"),
    _long("rank", required=True),
)

#: Gold: capacity forecast for the day after the last: by key class and hour of day (0 to 23, UTC), requests and workers
#: that are busy at once, expected and with an upper bound.
FORECAST = _table(
    _text("class", required=True),
    _day(),
    StructField("hour", IntegerType(), False),
    StructField("requests", DoubleType(), False),
    StructField("requests_high", DoubleType(), False),
    StructField("workers", DoubleType(), False),
    StructField("workers_high", DoubleType(), False),
    _long("days_of_history", required=True),
)

#: Gold: what each candidate delay would have done, by key: the trade-off curve. `delay_ms` is unbind and stop delay
#: together: how long an idle group is kept.
KEEP_ALIVE = _table(
    _text("key", required=True),
    _text("class", required=True),
    _long("delay_ms", required=True),
    _long("requests", required=True),
    _long("cold", required=True),
    _long("up_ms", required=True),
    _long("idle_ms", required=True),
)

#: Name of a table in the lake -> its schema. Each is a folder of Parquet files: `LAKE/POOL/NAME`.
TABLES = {
    "bronze": BRONZE,
    "rejects": REJECTS,
    "silver/events": EVENTS,
    "silver/requests": REQUESTS,
    "silver/lives": LIVES,
    "gold/demand": DEMAND,
    "gold/cold_starts": COLD_STARTS,
    "gold/latency": LATENCY,
    "gold/worker_hours": WORKER_HOURS,
    "gold/failures": FAILURES,
    "gold/key_classes": KEY_CLASSES,
    "gold/forecast": FORECAST,
    "gold/keep_alive": KEEP_ALIVE,
}
