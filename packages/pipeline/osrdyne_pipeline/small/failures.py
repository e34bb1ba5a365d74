"""The query of `gold/failures`; what it means is said in `osrdyne_pipeline.questions.failures`."""

from __future__ import annotations

from osrdyne_protocol import events as names
from osrdyne_protocol import statuses

#: As questions.failures has them.
NOTICE_MS = 60_000
_STUCK = "stuck"
_LENGTH = 80


def _fingerprint(column: str) -> str:
    """Text with what differs each time taken out: hexadecimal identities are H, numbers N.

    DuckDB's regular expressions cannot look around: the text is cut where letters and digits begin and end.
    """
    hexadecimal = "regexp_full_match(part, '[0-9a-fA-F]{8,}') and regexp_matches(part, '[0-9]')"
    shown = f"case when {hexadecimal} then 'H' else regexp_replace(part, '[0-9]+', 'N', 'g') end"
    parts = f"regexp_extract_all({column}, '[A-Za-z0-9]+|[^A-Za-z0-9]+')"
    return f"substring(array_to_string([{shown} for part in {parts}], ''), 1, {_LENGTH})"


FAILURES = f"""
    with signs as (
        select key, time_ms as at_ms, 0 as sign,
            case when event <> '{names.GROUP_STOPPED}' then time_ms end as restart_ms,
            case when event = '{names.GROUP_STOPPED}' then time_ms end as stuck_ms
        from events
        where event in ('{names.STARTED}', '{names.GROUP_STARTED}')
           or (event = '{names.GROUP_STOPPED}' and starts_with(outcome, '{_STUCK}'))
    ), failed as (
        select *, done_ms + {NOTICE_MS} as at_ms, 1 as sign
        from requests where outcome <> '{statuses.OK}' and done_ms is not null
    ), noticed as (
        select * exclude (restart_ms, stuck_ms),
            max(restart_ms) over so_far as restart_ms, max(stuck_ms) over so_far as stuck_ms
        from (from failed union all by name from signs)
        window so_far as (
            partition by key order by at_ms, sign rows between unbounded preceding and current row)
        qualify sign = 1
    ), described as (
        select *, {_fingerprint("outcome")} as reason,
            case when ended_by = '{names.FINISHED}' then 'answered' when deliveries = 0 then 'none'
                when deliveries = returns then 'gave back' when stuck_ms > received_ms then 'hung'
                when restart_ms > received_ms then 'crashed' else 'silent' end as worker_exit,
            {_fingerprint("key")} || ' / ' || {_fingerprint("request_id")} || ' / ' || case
                when length(key) <= 16 then 'short key' when length(key) <= 64 then 'middling key'
                else 'long key' end as shape
        from noticed
    ), causes as (
        select reason, worker_exit, shape, count(*) as requests, count(distinct key) as keys, min(done_ms) as first_ms,
            max(done_ms) as last_ms, min({{'seen_ms': seen_ms, 'key': key, 'request_id': request_id}}) as example
        from described group by reason, worker_exit, shape
    )
    select substring(sha256(concat_ws(chr(10), reason, worker_exit, shape)), 1, 12) as cause,
        reason, worker_exit, shape, requests, keys, first_ms, last_ms,
        example.key as example_key, example.request_id as example_request_id
    from causes
"""
