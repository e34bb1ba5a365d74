"""The query of `silver/lives`; what it means is said in `osrdyne_pipeline.silver.lives`."""

from __future__ import annotations

from osrdyne_pipeline.small.parts import DAY_MS, day_of, kind_of
from osrdyne_protocol import events as names

#: Kinds of what happens to a key, in the order in which those of one millisecond are read.
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
        select key, time_ms as at_ms, {kind_of(_HAPPENS)} as kind, null::bigint as end_ms,
            case when event = '{names.STARTED}' then worker_id end as worker_id, false as warm
        from events where event in ({", ".join(f"'{event}'" for event in _HAPPENS)})
        union all
        select key, time_ms, {_CLOSE}, null, null, false from events where event = '{names.GROUP_STARTED}'
        union all
        select key, coalesce(done_ms - run_ms, received_ms), {_RUN}, done_ms, worker_id, not cold
        from requests where received_ms is not null
    ), placed as (
        select *, row_number() over (partition by key order by at_ms, kind, warm desc) as place from happened
    ), unreported as (
        select *, count(case when kind in ({_CLOSE}, {_OPEN}) then 1 end) over so_far = 0 as unreported from placed
        window so_far as (partition by key order by place rows between unbounded preceding and current row)
    ), before as (
        select *, kind = {_RUN} and warm and unreported as runs_before from unreported
    ), opened as (
        select *, kind = {_OPEN} or (runs_before and count(case when runs_before then 1 end) over so_far = 1) as opens
        from before
        window so_far as (partition by key order by place rows between unbounded preceding and current row)
    ), numbered as (
        select *, count(case when opens then 1 end) over (
            partition by key order by place rows between unbounded preceding and current row) as life
        from opened qualify life > 0
    ), stopped as (
        select *, min(at_ms) filter (kind = {_CLOSE}) over (partition by key, life) as stopped_ms from numbered
    ), cut as (
        select *, greatest(at_ms, max(end_ms) over (
                partition by key, life order by place rows between unbounded preceding and 1 preceding)) as from_ms,
            least(end_ms, stopped_ms) as to_ms
        from stopped where kind = {_RUN} or coalesce(at_ms <= stopped_ms, true)
    ), busy as (
        select key, life, day_number,
            sum(least(to_ms, (day_number + 1) * {DAY_MS}) - greatest(from_ms, day_number * {DAY_MS})) as busy_ms
        from (
            select *, unnest(generate_series(from_ms // {DAY_MS}, (to_ms - 1) // {DAY_MS})) as day_number
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
            started_ms // {DAY_MS}, greatest(started_ms // {DAY_MS}, (end_ms - 1) // {DAY_MS}))) as day_number
        from ended
    ), listed as (
        select key, life, sum(coalesce(busy_ms, 0)) as busy_ms, list({{
                'day': date '1970-01-01' + cast(day_number as integer),
                'up_ms': least(end_ms, (day_number + 1) * {DAY_MS}) - greatest(started_ms, day_number * {DAY_MS}),
                'busy_ms': coalesce(busy_ms, 0)::bigint
            }} order by day_number) as days
        from days left join busy using (key, life, day_number) group by key, life
    )
    select key, started_ms, ready_ms,
        case when coalesce(bound_ms >= unbound_ms, false) then null else unbound_ms end as unbound_ms,
        stopped_ms, busy_ms::bigint as busy_ms, requests::integer as requests, workers::integer as workers, days,
        {day_of("started_ms")} as day
    from ended join listed using (key, life)
"""
