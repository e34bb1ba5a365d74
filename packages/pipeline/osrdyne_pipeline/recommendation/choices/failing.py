"""Keys whose workers cannot be started: neither other delays nor faster starts help them.

Every start of such a key has failed since a worker of it last showed that it works: all that there were, where none
ever did, or `LEAST` in a row. In words that Spark and DuckDB both understand.
"""

from __future__ import annotations

#: Failed starts in a row after which a key that had worked counts. A pool's `start_failures` has the same default.
LEAST = 3

#: The starts of each key of the table `starts`: their numbers, and whether every start fails.
BY_KEY = f"""
    with whole as (
        select key, sum(started) as started, sum(failed) as failed, max(good_ms) as good_ms from starts group by key
    ), since as (
        select starts.key as key, sum(failed_since) as failed_since
        from starts join whole on starts.key = whole.key
        where whole.good_ms is null or starts.failed_ms > whole.good_ms group by starts.key
    )
    select whole.key as key, started, failed, good_ms, coalesce(failed_since, 0) as failed_since,
        coalesce(failed_since, 0) >= case when good_ms is null then 1 else {LEAST} end as failing
    from whole left join since on whole.key = since.key
"""

#: The keys alone.
KEYS = f"select key from ({BY_KEY}) as by_key where failing order by key"
