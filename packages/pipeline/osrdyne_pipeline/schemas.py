"""The tables' schemas: what each layer holds, one row a what, and in which unit. Enforced where tables are written.

Times are integer milliseconds since the Unix epoch, durations integer milliseconds: what travels in the events
(osrdyne_protocol.headers), and what sums without rounding. A day is a day in UTC.
"""

from __future__ import annotations

import pyarrow as pa

_KINDS: dict[str, pa.DataType] = {
    "binary": pa.binary(),
    "bool": pa.bool_(),
    "date": pa.date32(),
    "double": pa.float64(),
    "int": pa.int32(),
    "long": pa.int64(),
    "text": pa.string(),
}


def _table(*columns: str | pa.Field) -> pa.Schema:
    """Return a schema. Each text has columns with their kinds; those that end in `!` are never null."""
    fields: list[pa.Field] = []
    for some in columns:
        if isinstance(some, pa.Field):
            fields.append(some)
            continue
        for name, kind in (column.split() for column in some.split(",")):
            fields.append(pa.field(name, _KINDS[kind.rstrip("!")], not kind.endswith("!")))
    return pa.schema(fields)


#: One row a message as a source gives it: a stream's message or a file's row, parsed, not judged.
#: `source` is the stream's or the file's name, `offset` the stream's offset or the number of the row in its file.
#: `caller` is the user of a request that the broker checked, `error` the class of a handler's error. Of the end of a
#: worker are `detail` (why), `output` (last lines), `log` (where it is) and `began` (whether it had said `started`).
#: Where a message could not be parsed, `problem` says why, and `raw` holds what was there, cut off.
RAW = _table(
    "source text!, offset long!, key text, event text, event_id text, time_ms long, worker_id text",
    "request_id text, outcome text, duration_ms long",
    "caller text, error text, detail text, output text, log text, began long, problem text, raw binary",
)

#: Bronze, one row an event as it came, duplicates included; partitioned by `day`, the day of `time_ms`.
#: An event without an id (of a worker that is not ours) has `source:offset` for one.
BRONZE = _table(
    "source text!, offset long!, key text!, event text!, event_id text!, time_ms long!, worker_id text",
    "request_id text, outcome text, duration_ms long",
    "caller text, error text, detail text, output text, log text, began long, day date!",
)

#: One row a message that is not an event of ours, with the reason; see rejects.REASONS.
REJECTS = _table(
    "source text!, offset long!, reason text!, key text, event text, event_id text, time_ms long, raw binary"
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
#: The wait of a warm request in its queue is not in this table: its first sign is `request-received`.
#: What has not happened ends its row: a request that no worker finished has no `done_ms`, and no parts.
REQUESTS = _table(
    "key text!, request_id text!, number int!, cold bool!, seen_ms long!",
    #: The first hand-out to a worker. The last, whose run counts, was at `done_ms - run_ms`.
    "received_ms long, done_ms long, orphan_ms long, start_ms long, queue_ms long, run_ms long, total_ms long",
    #: Hand-outs to workers (`request-received`).
    "deliveries int!",
    #: What `finished` said, else what `dead-lettered` said, else null: not known (lost events, or not done yet).
    "outcome text, worker_id text",
    #: Hand-outs that the worker gave back (`requeued`).
    "returns int",
    #: The event that ended it: `finished` (by a worker) or `dead-lettered` (by the daemon).
    "ended_by text",
    #: The user that the broker checked; null where the request named none, or an event of an older version.
    "caller text, day date!",
)

#: Silver, one row a life of a worker group: from `group-started` to `group-stopped`; `stopped_ms` is null while it
#: runs. Where no stop is reported (a crash), it ends at the key's next `group-started` or `queue-deleted`. One that
#: began before the history begins with its first warm request. `ready_ms` is the first `started` of a worker in it,
#: else its first hand-out. `unbound_ms` is when the key was unbound for the last time, null where it was bound again
#: since. `busy_ms` is the time in which at least one request that was handed out in it ran.
LIVES = _table(
    "key text!, started_ms long!, ready_ms long, unbound_ms long, stopped_ms long, busy_ms long!, requests int!",
    "workers int!",
    #: The life split at midnight; the parts sum to the whole. One that still runs counts up to the last event of all.
    pa.field("days", pa.list_(pa.struct(list(_table("day date, up_ms long, busy_ms long"))))),
    "day date!",
)

#: Gold: demand by key and hour. `hour_ms` is the hour's beginning.
DEMAND = _table("key text!, hour_ms long!, requests long!, cold long!, run_ms long!, day date!")

#: Gold: cold starts by key and day, and what they cost callers: the wait until a worker began, beyond a warm request's.
COLD_STARTS = _table(
    "key text!, requests long!",
    #: Requests that found no bound queue.
    "cold long!",
    #: Starts of the group; several cold requests may wait for one.
    "starts long!, waited_ms long!, worst_ms long, p50_ms long, p95_ms long, day date!",
)

#: Gold: the latency split by key and day: sums of each part over finished requests, cold and warm apart.
LATENCY = _table(
    "key text!, cold bool!, requests long!, orphan_ms long!, start_ms long!, queue_ms long!, run_ms long!",
    "total_ms long!, p50_ms long, p95_ms long, p99_ms long, day date!",
)

#: Gold: worker time by key and day, busy and idle: busy_ms + idle_ms = up_ms. A life that spans midnight counts in
#: both days.
WORKER_HOURS = _table("key text!, up_ms long!, busy_ms long!, idle_ms long!, lives long!, day date!")

#: Gold: failures and poison by cause. `cause` is a fingerprint of reason, how workers ended, and shape of the message.
FAILURES = _table(
    "cause text!, reason text!, worker_exit text!, shape text!, requests long!, keys long!, first_ms long!",
    "last_ms long!, example_key text!, example_request_id text!",
)

#: Gold: how workers ended and starts failed, and errors of handlers, by key and day. `what` is `worker-ended`,
#: `start-failed` or `handler-error`. `how` is the outcome of the event: `exit 1`, `signal 9`, `memory`, `stopped`, or
#: `stuck` where the daemon stopped a worker that did not work. `error` is the class of the error, where one is known.
#: `began` is whether the worker had said `started`. The example is of the last of them: a line of its output, or the
#: reason, of at most `causes.LONGEST` characters.
CAUSES = _table(
    "key text!, what text!, how text!, error text, began bool, times long!, last_ms long!, example text, log text",
    "day date!",
)

#: Gold: how starts of workers went, by key and day. `failed` counts workers that ended before `started`, and those that
#: could not be started; `failed_since` those of them after `good_ms`, when a worker last showed that it works.
STARTS = _table(
    "key text!, started long!, failed long!, failed_since long!, good_ms long, failed_ms long, day date!",
)

#: Gold: who used the workers, by key, caller and day. `busy_ms` is the part of the key's busy time; the parts of all
#: callers sum to `busy_ms` of `gold/worker_hours`. `caller` is null where it is not known.
BILL = _table("key text!, caller text, requests long!, cold long!, run_ms long!, busy_ms long!, day date!")

#: Gold: heavy and rare keys. `class` is `heavy`, `steady` or `rare`; see questions.key_classes.
KEY_CLASSES = _table(
    "key text!, class text!, requests long!, cold long!, days long!, run_ms long!, share double!",
    "median_gap_ms long, rank long!",
)

#: Gold: capacity forecast for the day after the last: by key class and hour of day (0 to 23, UTC), requests and workers
#: that are busy at once, expected and with an upper bound.
FORECAST = _table(
    "class text!, day date!, hour int!, requests double!, requests_high double!, workers double!",
    "workers_high double!, days_of_history long!",
)

#: Gold: what each candidate delay would have done, by key: the trade-off curve. `delay_ms` is unbind and stop delay
#: together: how long an idle group is kept.
KEEP_ALIVE = _table("key text!, class text!, delay_ms long!, requests long!, cold long!, up_ms long!, idle_ms long!")

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
    "gold/causes": CAUSES,
    "gold/starts": STARTS,
    "gold/bill": BILL,
    "gold/key_classes": KEY_CLASSES,
    "gold/forecast": FORECAST,
    "gold/keep_alive": KEEP_ALIVE,
}
