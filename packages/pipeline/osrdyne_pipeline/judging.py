"""Which rows are events of ours, and why others are not: RAW in, rows with a verdict out."""

from __future__ import annotations

from osrdyne_protocol import events
from osrdyne_protocol.keys import SHORT_STRING_BYTES

#: Milliseconds by which an event may be later than now: clocks differ.
ALLOWANCE_MS = 300_000

#: Milliseconds since the epoch at which 2010 began. An event that is older has its time from a clock that was reset: to
#: 1970, to 2000, or to when a machine was made. One such event would make the history, and every sum of a group's
#: hours, many years long. Histories that were made for the examples are of 2013.
EARLIEST_MS = 1_262_304_000_000

#: Events that the protocol knows.
KNOWN = events.ACTIVITY | events.LIFECYCLE | events.BY_A_PERSON | {events.STOPPING, events.INTERRUPTED}

#: Reason of a reject -> what it means. The first that holds is given; the sources give the first five.
REASONS = {
    "gap": "Retention removed these events before they were read.",
    "unreadable_offset": "The message at this offset of the stream cannot be received.",
    "truncated_file": "The file ends too early or is damaged; what comes after this row is lost.",
    "unreadable": "The line or file could not be parsed.",
    "invalid_key": "The key is missing, is not UTF-8, is longer than 255 bytes or holds NUL.",
    "no_event": "The message does not say which event it is.",
    "unknown_event": "The protocol has no such event.",
    "no_time": "The event does not say when it was.",
    "implausible_time": "The event's time is before 2010, or is not a time.",
    "clock_skew": "The event is later than the time at which it was read, by more than clocks may differ.",
    "negative_duration": "The request took less than no time.",
}


def judging(latest_ms: int) -> str:
    """Return the query that judges the rows of `given`.

    It gives rows of RAW with their `reason`, null for a good event, and what BRONZE has beyond them. No event is later
    than `latest_ms`, in milliseconds since the epoch. The `day` of a reject is null.
    """
    known, reasons = (", ".join(f"'{word}'" for word in sorted(words)) for words in (KNOWN, REASONS))
    day_ms = 86_400_000
    return f"""
        with judged as (
            select given.*, case
                when problem is not null and split_part(problem, ':', 1) in ({reasons}) then split_part(problem, ':', 1)
                when problem is not null then 'unreadable'
                when event is null or event = '' then 'no_event'
                when event not in ({known}) then 'unknown_event'
                when key is null or bit_length(key) > {8 * SHORT_STRING_BYTES} or contains(key, chr(0))
                    then 'invalid_key'
                when time_ms is null then 'no_time'
                when time_ms < {EARLIEST_MS} then 'implausible_time'
                when time_ms > {latest_ms} then 'clock_skew'
                when duration_ms < 0 then 'negative_duration'
                end as reason
            from given
        )
        select source, judged.offset as offset, key, event, time_ms, worker_id, request_id, outcome, duration_ms,
            caller, error, detail, output, log, began,
            case when coalesce(event_id, '') = '' and reason is null
                then source || ':' || cast(judged.offset as string) else event_id end as event_id,
            case when reason is null
                then date '1970-01-01' + cast((time_ms - time_ms % {day_ms}) / {day_ms} as int) end as day,
            reason, raw
        from judged
    """
