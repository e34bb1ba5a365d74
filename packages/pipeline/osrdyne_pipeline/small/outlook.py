"""The queries of `gold/forecast` and `gold/keep_alive`; see `questions.forecast` and `recommendation.candidates`."""

from __future__ import annotations

from osrdyne_pipeline.recommendation.choices.options import DELAYS, STOP_SECONDS
from osrdyne_pipeline.small.parts import HOUR_MS

#: As questions.forecast has them.
WEEKS = 2
BOUND = 1.645


def _variance(values: str, mean: str) -> str:
    """Variance of a sample, days without a value being zero; zero where there is but one day."""
    squares = f"coalesce(list_sum([(value - {mean}) * (value - {mean}) for value in {values}]), 0)"
    empty_days = f"(days - len({values})) * {mean} * {mean}"
    return f"case when days > 1 then ({squares} + {empty_days}) / (days - 1) else 0.0::double end"


FORECAST = f"""
    with per_hour as (
        select class, day as "on", hour_ms // {HOUR_MS} % 24 as hour, sum(requests) as requests, sum(run_ms) as run_ms
        from demand join (select key, class from key_classes) using (key) group by all
    ), history as (
        select max(day) + 1 as next, max(day) - min(day) + 1 as "all" from demand
    ), days as (
        select next, "all" >= {7 * WEEKS} as weekly,
            case when "all" >= {7 * WEEKS} then "all" // 7 else "all" end as days
        from history where next is not null
    ), grid as (
        select * from (select distinct class from key_classes) cross join days
            cross join (select unnest(generate_series(0, 23)) as hour)
    ), alike as (
        select class, hour, next, days,
            list({{'count': requests::double, 'busy': run_ms / {HOUR_MS}}} order by "on")
                filter ("on" is not null and (not weekly or (next - "on") % 7 = 0)) as hours
        from grid left join per_hour using (class, hour) group by class, hour, next, days
    ), listed as (
        select *, [each.count for each in coalesce(hours, [])] as counts, [each.busy for each in coalesce(hours, [])]
            as busy
        from alike
    ), means as (
        select *, coalesce(list_sum(counts), 0) / days as mean, coalesce(list_sum(busy), 0) / days as mean_workers
        from listed
    ), spread as (
        select *, {_variance("counts", "mean")} as variance, {_variance("busy", "mean_workers")} as workers_variance,
            1 + 1 / days as unsure
        from means
    )
    select class, next as day, hour::integer as hour, mean as requests,
        mean + {BOUND}::double * sqrt(greatest(variance, mean) * unsure) as requests_high, mean_workers as workers,
        mean_workers + {BOUND}::double * sqrt(workers_variance * unsure + mean_workers) as workers_high,
        days as days_of_history
    from spread
"""

_CANDIDATES = sorted({int(delay * 1000) for delay in DELAYS.tolist()})
_STOP_MS = int(STOP_SECONDS * 1000)
_EDGES = sorted({*_CANDIDATES, *(candidate - _STOP_MS for candidate in _CANDIDATES)})
_CHOICES = ", ".join(
    f"({candidate}::bigint, {_EDGES.index(candidate)}, {_EDGES.index(candidate - _STOP_MS)})"
    for candidate in _CANDIDATES
)

KEEP_ALIVE = f"""
    with ended as (
        select key, request_id, number, seen_ms, greatest(seen_ms, coalesce(done_ms, received_ms, seen_ms)) as end_ms
        from requests
    ), gaps as (
        select key, seen_ms, end_ms, lead(seen_ms) over in_order as next_ms, max(end_ms) over earlier as before_ms
        from ended
        window in_order as (partition by key order by seen_ms, request_id, number),
        earlier as (
            partition by key order by seen_ms, request_id, number rows between unbounded preceding and 1 preceding)
    ), counted as (
        select key, (before_ms is null)::bigint as first, (next_ms is not null)::bigint as closed,
            greatest(0, coalesce(next_ms, (select max(end_ms) from ended)) - greatest(end_ms, before_ms)) as gap,
            greatest(0, end_ms - greatest(seen_ms, before_ms)) as busy
        from gaps
    ), binned as (
        select key, {" + ".join(f"(gap >= {edge})::integer" for edge in _EDGES)} as bin, count(*) as requests,
            sum(first) as first, sum(closed) as closed, sum(gap) as gap, sum(busy) as busy
        from counted group by key, bin
    ), summed as (
        select key, delay_ms, requests, busy,
            first + case when bin > unbound then closed else 0 end as cold,
            case when bin > stopped then requests * delay_ms else gap end as idle
        from binned cross join (values {_CHOICES}) as choices(delay_ms, stopped, unbound)
    ), curves as (
        select key, delay_ms, sum(requests)::bigint as requests, sum(cold)::bigint as cold,
            sum(busy + idle)::bigint as up_ms, sum(idle)::bigint as idle_ms
        from summed group by key, delay_ms
    )
    select key, coalesce(class, 'rare') as class, delay_ms, curves.requests, curves.cold, up_ms, idle_ms
    from curves left join (select key, class from key_classes) using (key)
"""
