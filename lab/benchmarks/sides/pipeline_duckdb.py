"""The pipeline's tables by DuckDB, in SQL; the peer that uses every core as Spark does.

    python -m benchmarks.sides.pipeline_duckdb EVENTS OUT

Reads a folder of Parquet files of events, writes a Parquet file a table into OUT, and prints one JSON line with the
seconds it took. The queries say what silver/ and questions/ of the pipeline say, row for row. `failures` is not among
them (its fingerprints need lookaround, which DuckDB's regular expressions have not), nor are `forecast`, a few rows,
and `keep_alive`, which nobody else has.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.sides.pipeline_plain import KINDS
from osrdyne_pipeline.judging import ALLOWANCE_MS, KNOWN
from osrdyne_protocol import events as names

# Imported only where it is used: a process that has imported it may end with pages of "nanobind: leaked 27 instances!",
# and the tests import all benchmarks.
if TYPE_CHECKING:
    import duckdb

_DAY = 86_400_000
_HOUR = 3_600_000


def _day_of(column: str) -> str:
    return f"(date '1970-01-01' + cast({column} // {_DAY} as integer))"


def _kind(kinds: dict[str, int]) -> str:
    return "case event " + " ".join(f"when '{event}' then {kind}" for event, kind in kinds.items()) + " end"


def _moment(*columns: str) -> str:
    """Return a struct that sorts by time and then by what is said, what is not said first."""
    said = (f"'has_{one}': {one} is not null, '{one}': {one}" for one in columns)
    return "{'at': time_ms, " + ", ".join(said) + "}"


BRONZE = f"""
    select parse_filename(filename) as source, file_row_number as "offset", key, event,
        coalesce(nullif(event_id, ''), parse_filename(filename) || ':' || file_row_number) as event_id,
        time_ms, worker_id, request_id, outcome, duration_ms, {_day_of("time_ms")} as day
    from read_parquet($events, filename = true, file_row_number = true)
    where event in ({", ".join(f"'{one}'" for one in sorted(KNOWN))})
      and key is not null and strlen(key) <= 255 and not contains(key, chr(0))
      and time_ms >= 0 and time_ms <= $latest and coalesce(duration_ms, 0) >= 0
"""

EVENTS = """
    select * from bronze
    qualify row_number() over (
        partition by event_id
        order by time_ms, key, event, request_id nulls first, worker_id nulls first, outcome nulls first,
            duration_ms nulls first, source, "offset"
    ) = 1
"""

REQUESTS = f"""
    with told as (
        select key, coalesce(nullif(request_id, ''), '~' || event_id) as request_id, {_kind(KINDS)} as kind,
            time_ms, outcome, worker_id
        from events
        where event in ({", ".join(f"'{one}'" for one in KINDS)})
          and (nullif(request_id, '') is not null or event = '{names.REQUEST_RECEIVED}')
    ), judged as (
        select *, kind in (0, 2) as begins,
            kind = 4 or (kind = 3 and outcome is distinct from '{names.REQUEUED}') as ends
        from told
    ), anew as (
        select *, begins and coalesce(
            last_value(case when begins then false when ends then true end ignore nulls) over before
                or time_ms - lag(time_ms) over in_time > {_DAY}, false) as is_anew
        from judged
        window in_time as (
            partition by key, request_id order by time_ms, kind, outcome nulls first, worker_id nulls first),
        before as (
            partition by key, request_id order by time_ms, kind, outcome nulls first, worker_id nulls first
            rows between unbounded preceding and 1 preceding)
    ), numbered as (
        select *, 1 + sum(is_anew::integer) over (
            partition by key, request_id order by time_ms, kind, outcome nulls first, worker_id nulls first
            rows between unbounded preceding and current row) as number
        from anew
    ), joined as (
        select key, request_id, number, min(time_ms) as seen_ms, bool_or(kind in (0, 1)) as cold,
            max(time_ms) filter (kind = 1) as forwarded_ms,
            min(time_ms) filter (kind = 2) as received_ms,
            max({_moment("worker_id")}) filter (kind = 2) as last,
            count(*) filter (kind = 2) as deliveries,
            count(*) filter (kind = 3 and not ends) as returns,
            min({_moment("outcome", "worker_id")}) filter (kind = 3 and ends) as finished,
            min({_moment("outcome")}) filter (kind = 4) as dead
        from numbered group by key, request_id, number
    ), waiting as (
        select *, least(finished.at, dead.at) as done_ms,
            coalesce(received_ms, least(finished.at, dead.at), seen_ms) as at_ms
        from joined
    ), signs as (
        select key, time_ms as at_ms, (event = '{names.STARTED}')::integer as sign,
            case when event = '{names.STARTED}' then time_ms end as started_ms
        from events where event in
            ('{names.STARTED}', '{names.GROUP_STARTED}', '{names.GROUP_STOPPED}', '{names.QUEUE_DELETED}')
    ), grouped as (
        select *, count(*) filter (sign = 0) over (
            partition by key order by at_ms, sign rows between unbounded preceding and current row) as "group"
        from (select *, 2 as sign from waiting union all by name select * from signs)
    ), ready as (
        select *, min(started_ms) over (partition by key, "group") as ready_ms from grouped qualify sign = 2
    ), moments as (
        select *, least(coalesce(last.at, done_ms), done_ms) as in_hand_ms from ready
    ), parted as (
        select *, case when cold then greatest(seen_ms, least(coalesce(forwarded_ms, in_hand_ms), in_hand_ms))
            else seen_ms end as left_ms
        from moments
    ), begun as (
        select *, case when cold then greatest(left_ms, least(coalesce(ready_ms, in_hand_ms), in_hand_ms))
            else left_ms end as begun_ms, done_ms is not null as done
        from parted
    )
    select key, request_id, number::integer as number, cold, seen_ms, received_ms, done_ms,
        case when done then left_ms - seen_ms end as orphan_ms,
        case when done then begun_ms - left_ms end as start_ms,
        case when done then in_hand_ms - begun_ms end as queue_ms,
        case when done then done_ms - in_hand_ms end as run_ms,
        case when done then done_ms - seen_ms end as total_ms,
        deliveries::integer as deliveries,
        case when finished is not null then finished.outcome else dead.outcome end as outcome,
        coalesce(finished.worker_id, last.worker_id) as worker_id,
        returns::integer as returns,
        case when finished is not null then '{names.FINISHED}' when done then '{names.DEAD_LETTERED}' end as ended_by,
        {_day_of("seen_ms")} as day
    from begun
"""

_CLOSE, _OPEN, _BOUND, _UNBOUND, _STARTED, _RUN = range(6)
_HAPPENS = {
    names.GROUP_STOPPED: _CLOSE,
    names.QUEUE_DELETED: _CLOSE,
    names.GROUP_STARTED: _OPEN,
    names.QUEUE_READY: _BOUND,
    names.UNBOUND: _UNBOUND,
    names.STARTED: _STARTED,
}

LIVES = f"""
    with happened as (
        select key, time_ms as at_ms, {_kind(_HAPPENS)} as kind, null::bigint as end_ms,
            case when event = '{names.STARTED}' then worker_id end as worker_id, false as warm
        from events where event in ({", ".join(f"'{one}'" for one in _HAPPENS)})
        union all
        select key, time_ms, {_CLOSE}, null, null, false from events where event = '{names.GROUP_STARTED}'
        union all
        select key, coalesce(done_ms - run_ms, received_ms), {_RUN}, done_ms, worker_id, not cold
        from requests where received_ms is not null
    ), untold as (
        select *, count(*) filter (kind in ({_CLOSE}, {_OPEN})) over so_far = 0 as untold from happened
        window so_far as (
            partition by key order by at_ms, kind, warm desc rows between unbounded preceding and current row)
    ), before as (
        select *, kind = {_RUN} and warm and untold as runs_before from untold
    ), opened as (
        select *, kind = {_OPEN} or (runs_before and count(*) filter (runs_before) over so_far = 1) as opens from before
        window so_far as (
            partition by key order by at_ms, kind, warm desc rows between unbounded preceding and current row)
    ), numbered as (
        select *, count(*) filter (opens) over (
            partition by key order by at_ms, kind, warm desc
            rows between unbounded preceding and current row) as life
        from opened qualify life > 0
    ), stopped as (
        select *, min(at_ms) filter (kind = {_CLOSE}) over (partition by key, life) as stopped_ms from numbered
    ), cut as (
        select *, greatest(at_ms, max(end_ms) over (
                partition by key, life order by at_ms, kind rows between unbounded preceding and 1 preceding))
                as from_ms,
            least(end_ms, stopped_ms) as to_ms
        from stopped where kind = {_RUN} or coalesce(at_ms <= stopped_ms, true)
    ), busy as (
        select key, life, day_number,
            sum(least(to_ms, (day_number + 1) * {_DAY}) - greatest(from_ms, day_number * {_DAY})) as busy_ms
        from (
            select *, unnest(generate_series(from_ms // {_DAY}, (to_ms - 1) // {_DAY})) as day_number
            from cut where end_ms is not null and from_ms < to_ms
        ) group by key, life, day_number
    ), whole as (
        select key, life, min(at_ms) filter (opens) as started_ms,
            coalesce(min(at_ms) filter (kind = {_STARTED}), min(at_ms) filter (kind = {_RUN})) as ready_ms,
            max(at_ms) filter (kind = {_BOUND}) as bound_ms, max(at_ms) filter (kind = {_UNBOUND}) as unbound_ms,
            min(stopped_ms) as stopped_ms, count(*) filter (kind = {_RUN}) as requests,
            count(distinct worker_id) as workers
        from cut group by key, life
    ), ended as (
        select *, greatest(started_ms, coalesce(stopped_ms, (select max(time_ms) from events))) as end_ms from whole
    ), days as (
        select key, life, started_ms, end_ms, unnest(generate_series(
            started_ms // {_DAY}, greatest(started_ms // {_DAY}, (end_ms - 1) // {_DAY}))) as day_number
        from ended
    ), listed as (
        select key, life, sum(coalesce(busy_ms, 0)) as busy_ms, list({{
                'day': date '1970-01-01' + cast(day_number as integer),
                'up_ms': least(end_ms, (day_number + 1) * {_DAY}) - greatest(started_ms, day_number * {_DAY}),
                'busy_ms': coalesce(busy_ms, 0)::bigint
            }} order by day_number) as days
        from days left join busy using (key, life, day_number) group by key, life
    )
    select key, started_ms, ready_ms,
        case when coalesce(bound_ms >= unbound_ms, false) then null else unbound_ms end as unbound_ms,
        stopped_ms, busy_ms::bigint as busy_ms, requests::integer as requests, workers::integer as workers, days,
        {_day_of("started_ms")} as day
    from ended join listed using (key, life)
"""

DEMAND = f"""
    select key, seen_ms // {_HOUR} * {_HOUR} as hour_ms, count(*) as requests, count(*) filter (cold) as cold,
        coalesce(sum(run_ms), 0)::bigint as run_ms, {_day_of("hour_ms")} as day
    from requests group by key, hour_ms
"""

COLD_STARTS = """
    select key, count(*) filter (asked) as requests, count(*) filter (cold) as cold,
        count(*) filter (not asked) as starts, coalesce(sum(wait_ms), 0)::bigint as waited_ms, max(wait_ms) as worst_ms,
        quantile_disc(wait_ms, 0.5) as p50_ms, quantile_disc(wait_ms, 0.95) as p95_ms, day
    from (
        select key, day, true as asked, cold,
            case when cold then coalesce(received_ms, done_ms) - seen_ms end as wait_ms
        from requests
        union all select key, day, false, false, null from lives
    ) group by key, day
"""

LATENCY = """
    select key, cold, count(*) as requests, sum(orphan_ms)::bigint as orphan_ms, sum(start_ms)::bigint as start_ms,
        sum(queue_ms)::bigint as queue_ms, sum(run_ms)::bigint as run_ms, sum(total_ms)::bigint as total_ms,
        quantile_disc(total_ms, 0.5) as p50_ms, quantile_disc(total_ms, 0.95) as p95_ms,
        quantile_disc(total_ms, 0.99) as p99_ms, day
    from requests where done_ms is not null group by key, cold, day
"""

WORKER_HOURS = """
    select key, sum(up_ms)::bigint as up_ms, sum(busy_ms)::bigint as busy_ms, (sum(up_ms) - sum(busy_ms))::bigint
        as idle_ms, count(*) as lives, day
    from (select key, unnest(days, recursive := true) from (select key, days from lives)) group by key, day
"""

KEY_CLASSES = f"""
    with gaps as (
        select *, seen_ms - lag(seen_ms) over (partition by key order by seen_ms) as gap_ms from requests
    ), by_key as (
        select key, count(*) as requests, count(*) filter (cold) as cold, count(distinct day) as days,
            coalesce(sum(run_ms), 0)::bigint as run_ms, quantile_disc(gap_ms, 0.5) as median_gap_ms
        from gaps group by key
    ), ranked as (
        select *, row_number() over (order by requests desc, key) as rank,
            sum(requests) over (order by requests desc, key rows between unbounded preceding and current row) as up_to,
            sum(requests) over () as total
        from by_key
    )
    select key,
        case when requests < 10 or median_gap_ms >= {_DAY} then 'rare'
            when up_to - requests < total * 0.5 then 'heavy' else 'steady' end as class,
        requests, cold, days, run_ms, requests / total as share, median_gap_ms, rank
    from ranked
"""

#: Table -> query, each of tables further up.
QUERIES = {
    "events": EVENTS,
    "requests": REQUESTS,
    "lives": LIVES,
    "demand": DEMAND,
    "cold_starts": COLD_STARTS,
    "latency": LATENCY,
    "worker_hours": WORKER_HOURS,
    "key_classes": KEY_CLASSES,
}


def make(connection: duckdb.DuckDBPyConnection, out: Path) -> None:
    """Make every table of the connection's table `bronze`, and write each to a file in `out`."""
    for name, query in QUERIES.items():
        connection.execute(f"create table {name} as {query}")
        connection.execute(f"copy {name} to '{out / name}.parquet' (format parquet, compression zstd)")


def main() -> None:
    """Read, make the tables, and tell how long it took."""
    events, out = sys.argv[1], Path(sys.argv[2])
    import duckdb

    begun = time.perf_counter()
    with duckdb.connect() as connection:
        connection.execute("set enable_progress_bar = false")
        latest = int(time.time() * 1000) + ALLOWANCE_MS
        connection.execute(f"create table bronze as {BRONZE}", {"events": f"{events}/*.parquet", "latest": latest})
        connection.execute(f"copy bronze to '{out}/bronze.parquet' (format parquet, compression zstd)")
        make(connection, out)
    print(json.dumps({"seconds": time.perf_counter() - begun}))


if __name__ == "__main__":
    main()
