"""The queries of `silver/events` and `silver/requests`; what they mean is said in `osrdyne_pipeline.silver`."""

from __future__ import annotations

from osrdyne_pipeline.small.parts import DAY_MS, day_of, kind_of, moment
from osrdyne_protocol import events as names

#: Events of a request, in the order in which those of one millisecond are read.
_KINDS = {
    names.ORPHAN_SEEN: 0,
    names.FORWARDED: 1,
    names.REQUEST_RECEIVED: 2,
    names.FINISHED: 3,
    names.DEAD_LETTERED: 4,
}

EVENTS = """
    select * from bronze
    qualify row_number() over (
        partition by event_id
        order by time_ms, key, event, request_id nulls first, worker_id nulls first, outcome nulls first,
            duration_ms nulls first, source, "offset", caller nulls first, error nulls first, detail nulls first,
            output nulls first, log nulls first, began nulls first
    ) = 1
"""

REQUESTS = f"""
    with reported as (
        select key, coalesce(nullif(request_id, ''), '~' || event_id) as request_id, {kind_of(_KINDS)} as kind,
            time_ms, outcome, worker_id, nullif(caller, '') as caller
        from events
        where event in ({", ".join(f"'{event}'" for event in _KINDS)})
          and (nullif(request_id, '') is not null or event = '{names.REQUEST_RECEIVED}')
    ), judged as (
        select *, kind in (0, 2) as begins,
            kind = 4 or (kind = 3 and outcome is distinct from '{names.REQUEUED}') as ends,
            row_number() over (partition by key, request_id
                order by time_ms, kind, outcome nulls first, worker_id nulls first) as place
        from reported
    ), separated as (
        select *, begins and coalesce(
            last_value(case when begins then false when ends then true end ignore nulls) over before
                or time_ms - lag(time_ms) over in_time > {DAY_MS}, false) as begins_another
        from judged
        window in_time as (partition by key, request_id order by place),
        before as (partition by key, request_id order by place rows between unbounded preceding and 1 preceding)
    ), numbered as (
        select *, 1 + sum(begins_another::integer) over (
            partition by key, request_id order by place rows between unbounded preceding and current row) as number
        from separated
    ), joined as (
        select key, request_id, number, min(time_ms) as seen_ms, bool_or(kind in (0, 1)) as cold,
            max(time_ms) filter (kind = 1) as forwarded_ms,
            min(time_ms) filter (kind = 2) as received_ms,
            max({moment("worker_id")}) filter (kind = 2) as last,
            count(*) filter (kind = 2) as deliveries,
            count(*) filter (kind = 3 and not ends) as returns,
            min({moment("outcome", "worker_id")}) filter (kind = 3 and ends) as finished,
            min({moment("outcome")}) filter (kind = 4) as dead,
            min({moment("caller")}) filter (kind = 0 and caller is not null) as woke,
            min({moment("caller")}) filter (kind = 2 and caller is not null) as asked
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
        select *, count(case when sign = 0 then 1 end) over (
            partition by key order by at_ms, sign rows between unbounded preceding and current row) as "group"
        from (select *, 2 as sign from waiting union all by name select * from signs)
    ), ready as (
        select *, min(started_ms) over (partition by key, "group") as ready_ms from grouped qualify sign = 2
    ), moments as (
        select *, least(coalesce(last.at, done_ms), done_ms) as in_hand_ms from ready
    ), forwarded as (
        select *, case when cold then greatest(seen_ms, least(coalesce(forwarded_ms, in_hand_ms), in_hand_ms))
            else seen_ms end as left_ms
        from moments
    ), begun as (
        select *, case when cold then greatest(left_ms, least(coalesce(ready_ms, in_hand_ms), in_hand_ms))
            else left_ms end as begun_ms, done_ms is not null as done
        from forwarded
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
        case when cold then woke.caller else asked.caller end as caller,
        {day_of("seen_ms")} as day
    from begun
"""
