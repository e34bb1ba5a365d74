"""The query of `gold/bill`; what it means is said in `osrdyne_pipeline.questions.bill`."""

from __future__ import annotations

from osrdyne_pipeline.small.parts import DAY_MS, day_of

BILL = f"""
    with runs as (
        select key, caller, done_ms - run_ms as begun_ms, done_ms,
            unnest(generate_series((done_ms - run_ms) // {DAY_MS}, (done_ms - 1) // {DAY_MS})) as day_number
        from requests where received_ms is not null and run_ms > 0
    ), shares as (
        select key, caller, day, 1 as requests, cold::bigint as cold, coalesce(run_ms, 0) as run_ms, 0 as weight
        from requests
        union all
        select key, caller, {day_of(f"(day_number * {DAY_MS})")}, 0, 0, 0,
            least(done_ms, (day_number + 1) * {DAY_MS}) - greatest(begun_ms, day_number * {DAY_MS})
        from runs
    ), by_caller as (
        select key, caller, day, sum(requests)::bigint as requests, sum(cold)::bigint as cold,
            sum(run_ms)::bigint as run_ms, sum(weight)::hugeint as weight
        from shares group by key, caller, day
    ), placed as (
        select *, sum(weight) over so_far as up_to, sum(weight) over (partition by key, day) as whole
        from by_caller
        window so_far as (partition by key, day order by caller nulls first
            rows between unbounded preceding and current row)
    )
    select key, caller, requests, cold, run_ms,
        case when whole = 0 then 0 else coalesce(busy, 0) * up_to // whole - coalesce(busy, 0) * (up_to - weight)
            // whole end::bigint as busy_ms, day
    from placed left join (select key, day, busy_ms::hugeint as busy from worker_hours) using (key, day)
"""
