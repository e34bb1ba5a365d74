"""The queries of most gold tables; what they mean is said in `osrdyne_pipeline.questions`."""

from __future__ import annotations

from osrdyne_pipeline.small.parts import DAY_MS, HOUR_MS, day_of

DEMAND = f"""
    select key, seen_ms // {HOUR_MS} * {HOUR_MS} as hour_ms, count(*) as requests, count(*) filter (cold) as cold,
        coalesce(sum(run_ms), 0)::bigint as run_ms, {day_of("hour_ms")} as day
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
        case when requests < 10 or median_gap_ms >= {DAY_MS} then 'rare'
            when up_to - requests < total * 0.5 then 'heavy' else 'steady' end as class,
        requests, cold, days, run_ms, requests / total as share, median_gap_ms, rank
    from ranked
"""
