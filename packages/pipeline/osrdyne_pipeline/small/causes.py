"""The queries of `gold/causes` and `gold/starts`; what they mean is said in `osrdyne_pipeline.questions.causes`."""

from __future__ import annotations

from osrdyne_protocol import events as names
from osrdyne_protocol import statuses

#: As questions.causes has them.
ERROR_CLASS = r"^(([A-Za-z_][A-Za-z0-9_]*\.)*[A-Z][A-Za-z0-9_]*(Error|Exception|Exit|Interrupt))(:|\z)"
LONGEST = 600
_STUCK = "stopped: stuck"
_HOW, _CLASS = 80, 100

_LINES = "string_split(output, chr(10))"

CAUSES = f"""
    with ended as (
        select *, [line for line in {_LINES} if regexp_matches(line, '{ERROR_CLASS}')][-1] as raised,
            [line for line in {_LINES} if regexp_matches(line, '[^ \\t\\r]')][-1] as last_line
        from events where event in ('{names.WORKER_ENDED}', '{names.START_FAILED}')
            or (event = '{names.FINISHED}' and outcome = '{statuses.ERROR}')
    ), reported as (
        select key, day, time_ms, event_id,
            case when event = '{names.FINISHED}' then 'handler-error' else event end as what,
            case when outcome = 'stopped' and starts_with(detail, '{_STUCK}') then 'stuck'
                else coalesce(nullif(substring(outcome, 1, {_HOW}), ''), 'unknown') end as how,
            nullif(substring(case when event = '{names.FINISHED}' then error
                else regexp_extract(raised, '{ERROR_CLASS}', 1) end, 1, {_CLASS}), '') as error,
            case when event = '{names.FINISHED}' then null when began = 1 then true when began = 0 then false end
                as began,
            case when event <> '{names.FINISHED}'
                then substring(coalesce(raised, last_line, detail), 1, {LONGEST}) end as example,
            case when event <> '{names.FINISHED}' then substring(log, 1, {LONGEST}) end as log
        from ended
    ), counted as (
        select key, what, how, error, began, count(*) as times, max(time_ms) as last_ms,
            max({{'at': time_ms, 'id': event_id, 'example': example, 'log': log}}) as latest, day
        from reported group by key, what, how, error, began, day
    )
    select key, what, how, error, began, times, last_ms, latest.example as example, latest.log as log, day from counted
"""

STARTS = f"""
    with reported as (
        select key, day, time_ms, event = '{names.STARTED}' as started,
            event in ('{names.STARTED}', '{names.REQUEST_RECEIVED}') or coalesce(began = 1, false) as good,
            event = '{names.START_FAILED}' or (event = '{names.WORKER_ENDED}' and coalesce(began = 0, false)
                and (outcome is distinct from 'stopped' or coalesce(starts_with(detail, '{_STUCK}'), false))) as failed
        from events
        where event in
            ('{names.STARTED}', '{names.REQUEST_RECEIVED}', '{names.WORKER_ENDED}', '{names.START_FAILED}')
    ), by_day as (
        select key, day, count(*) filter (started) as started, max(time_ms) filter (good) as good_ms
        from reported where good or failed group by key, day
    ), bad as (
        select key, day, time_ms as failed_at from reported where failed
    )
    select key, started, count(failed_at) as failed,
        count(failed_at) filter (coalesce(failed_at > good_ms, true)) as failed_since, good_ms,
        max(failed_at) as failed_ms, day
    from by_day left join bad using (key, day) group by key, started, good_ms, day
"""
