"""The pipeline's silver tables by one thread of plain Python: dictionaries and sorts, as one would without Spark.

The peer of the benchmark, and what the tests hold Spark's answers against: the same tables, another way. Rows are
tuples in the order of the tables' columns.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from datetime import date, timedelta
from typing import Any, NamedTuple

from osrdyne_protocol import events as names

DAY_MS = 86_400_000
_EPOCH = date(1970, 1, 1)
#: Events of a request, in the order in which those of one millisecond are read.
KINDS = {
    names.ORPHAN_SEEN: 0,
    names.FORWARDED: 1,
    names.REQUEST_RECEIVED: 2,
    names.FINISHED: 3,
    names.DEAD_LETTERED: 4,
}
_BOUNDARIES = (names.GROUP_STARTED, names.GROUP_STOPPED, names.QUEUE_DELETED)

Row = tuple[Any, ...]
_Parts = tuple[int | None, int | None, int | None, int | None, int | None]


class Event(NamedTuple):
    """One event, as BRONZE has it without its day."""

    source: str
    offset: int
    key: str
    event: str
    event_id: str
    time_ms: int
    worker_id: str | None = None
    request_id: str | None = None
    outcome: str | None = None
    duration_ms: int | None = None
    caller: str | None = None
    error: str | None = None
    detail: str | None = None
    output: str | None = None
    log: str | None = None
    began: int | None = None


class Request(NamedTuple):
    """One row of REQUESTS."""

    key: str
    request_id: str
    number: int
    cold: bool
    seen_ms: int
    received_ms: int | None
    done_ms: int | None
    orphan_ms: int | None
    start_ms: int | None
    queue_ms: int | None
    run_ms: int | None
    total_ms: int | None
    deliveries: int
    outcome: str | None
    worker_id: str | None
    returns: int
    ended_by: str | None
    caller: str | None
    day: date


class Life(NamedTuple):
    """One row of LIVES; `days` holds tuples."""

    key: str
    started_ms: int
    ready_ms: int | None
    unbound_ms: int | None
    stopped_ms: int | None
    busy_ms: int
    requests: int
    workers: int
    days: list[tuple[date, int, int]]
    day: date


def day_of(time_ms: int) -> date:
    return _EPOCH + timedelta(days=time_ms // DAY_MS)


def _known_first(value: Any) -> tuple[bool, Any]:
    """Sorts what is missing first."""
    return (value is not None, "" if value is None else value)


def events_of(bronze: Iterable[Event]) -> list[Event]:
    """One event an id: of copies, the one whose contents sort first."""
    kept: dict[str, Event] = {}
    for row in bronze:
        other = kept.get(row.event_id)
        if other is None or _order(row) < _order(other):
            kept[row.event_id] = row
    return list(kept.values())


def _order(one: Event) -> tuple[Any, ...]:
    first = (one.request_id, one.worker_id, one.outcome, one.duration_ms)
    more = (one.caller, one.error, one.detail, one.output, one.log, one.began)
    return (
        one.time_ms,
        one.key,
        one.event,
        *map(_known_first, first),
        one.source,
        one.offset,
        *map(_known_first, more),
    )


def _said(one: Event, kind: int) -> Row:
    return (one.time_ms, kind, one.outcome, one.worker_id, one.caller or None)


def requests_of(events: Iterable[Event]) -> list[Request]:
    by_id: dict[tuple[str, str], list[Row]] = defaultdict(list)
    signs: dict[str, list[tuple[int, bool]]] = defaultdict(list)
    for event in events:
        kind = KINDS.get(event.event)
        if kind is not None:
            if event.request_id:
                by_id[event.key, event.request_id].append(_said(event, kind))
            elif kind == 2:
                by_id[event.key, "~" + event.event_id].append(_said(event, kind))
        elif event.event == names.STARTED:
            signs[event.key].append((event.time_ms, True))
        if event.event in _BOUNDARIES:
            signs[event.key].append((event.time_ms, False))
    ready = {key: _Ready(found) for key, found in signs.items()}
    rows = []
    for (key, request_id), facts in by_id.items():
        if len(facts) > 1:
            facts.sort(key=lambda fact: (fact[0], fact[1], _known_first(fact[2]), _known_first(fact[3])))
        for number, part in enumerate(_split(facts), start=1):
            rows.append(_request(key, request_id, number, part, ready.get(key)))
    return rows


def _split(facts: list[Row]) -> Iterable[list[Row]]:
    """Events of one id, request by request."""
    part: list[Row] = []
    ended = False
    for event in facts:
        begins = event[1] in (0, 2)
        if part and begins and (ended or event[0] - part[-1][0] > DAY_MS):
            yield part
            part, ended = [], False
        part.append(event)
        if event[1] == 4 or (event[1] == 3 and event[2] != names.REQUEUED):
            ended = True
        elif begins:
            ended = False
    yield part


class _Ready:
    """When a key's groups showed their first worker."""

    def __init__(self, signs: list[tuple[int, bool]]) -> None:
        self._boundaries = sorted(time_ms for time_ms, started in signs if not started)
        self._first: dict[int, int] = {}
        for time_ms, started in sorted(signs):
            if started:
                self._first.setdefault(bisect_right(self._boundaries, time_ms), time_ms)

    def at(self, time_ms: int) -> int | None:
        return self._first.get(bisect_right(self._boundaries, time_ms))


def _request(key: str, request_id: str, number: int, part: list[Row], groups: _Ready | None) -> Request:
    received = [event for event in part if event[1] == 2]
    finished = next((event for event in part if event[1] == 3 and event[2] != names.REQUEUED), None)
    dead = next((event for event in part if event[1] == 4), None)
    forwarded = [event[0] for event in part if event[1] == 1]
    cold = part[0][1] == 0 or any(fact[1] in (0, 1) for fact in part)
    seen = part[0][0]
    first = received[0][0] if received else None
    done = min((end[0] for end in (finished, dead) if end is not None), default=None)
    parts: _Parts = (None, None, None, None, None)
    if done is not None:
        in_hand = min(received[-1][0], done) if received else done
        left, begun = seen, seen
        if cold:
            left = max(seen, min(forwarded[-1], in_hand)) if forwarded else in_hand
            shown = groups.at(done if first is None else first) if groups is not None else None
            begun = in_hand if shown is None else max(left, min(shown, in_hand))
        parts = (left - seen, begun - left, in_hand - begun, done - in_hand, done - seen)
    worker = finished[3] if finished is not None else None
    if worker is None and received:
        worker = max(received, key=lambda event: (event[0], _known_first(event[3])))[3]
    end = finished or dead
    named = [(event[0], event[4]) for event in part if event[1] == (0 if cold else 2) and event[4] is not None]
    return Request(
        key,
        request_id,
        number,
        cold,
        seen,
        first,
        done,
        *parts,
        len(received),
        None if end is None else end[2],
        worker,
        sum(fact[1] == 3 and fact[2] == names.REQUEUED for fact in part),
        names.FINISHED if finished else names.DEAD_LETTERED if dead else None,
        min(named)[1] if named else None,
        day_of(seen),
    )


_CLOSE, _OPEN, _BOUND, _UNBOUND, _STARTED, _RUN = range(6)
_HAPPENS = {
    names.GROUP_STOPPED: (_CLOSE,),
    names.QUEUE_DELETED: (_CLOSE,),
    names.GROUP_STARTED: (_CLOSE, _OPEN),
    names.QUEUE_READY: (_BOUND,),
    names.UNBOUND: (_UNBOUND,),
    names.STARTED: (_STARTED,),
}


def lives_of(events: Iterable[Event], requests: Iterable[Request]) -> list[Life]:
    by_key: dict[str, list[Row]] = defaultdict(list)
    history = 0
    for event in events:
        history = max(history, event.time_ms)
        for kind in _HAPPENS.get(event.event, ()):
            worker = event.worker_id if kind == _STARTED else None
            by_key[event.key].append((event.time_ms, kind, True, None, worker))
    for asked in requests:
        if asked.received_ms is not None:
            begun = asked.received_ms if asked.done_ms is None else asked.done_ms - (asked.run_ms or 0)
            by_key[asked.key].append((begun, _RUN, asked.cold, asked.done_ms, asked.worker_id))
    return [
        _life(key, opened, happened, history)
        for key, all_of_key in by_key.items()
        for opened, happened in _lives(sorted(all_of_key, key=lambda event: event[:3]))
    ]


def _lives(happened: list[Row]) -> Iterable[tuple[int, list[Row]]]:
    """What happened to one key, life by life, each with its beginning."""
    opened: int | None = None
    life: list[Row] = []
    group_reported = False
    for event in happened:
        group_reported = group_reported or event[1] in (_CLOSE, _OPEN)
        if event[1] == _OPEN or (opened is None and not group_reported and event[1] == _RUN and not event[2]):
            if opened is not None:
                yield opened, life
            opened, life = event[0], []
        life.append(event)
    if opened is not None:
        yield opened, life


def _life(key: str, opened: int, happened: list[Row], history: int) -> Life:
    stopped = min((event[0] for event in happened if event[1] == _CLOSE), default=None)
    within = [event for event in happened if event[1] == _RUN or stopped is None or event[0] <= stopped]
    end = max(opened, history if stopped is None else stopped)
    busy: dict[date, int] = defaultdict(int)
    for begin, until in _union((fact[0], fact[3]) for fact in within if fact[1] == _RUN and fact[3] is not None):
        for day, length in _by_day(begin, until if stopped is None else min(until, stopped)):
            busy[day] += length
    bound, unbound = (max((fact[0] for fact in within if fact[1] == kind), default=None) for kind in (_BOUND, _UNBOUND))
    shown, handed = (min((fact[0] for fact in within if fact[1] == kind), default=None) for kind in (_STARTED, _RUN))
    days = _by_day(opened, end) or [(day_of(opened), 0)]
    return Life(
        key,
        opened,
        handed if shown is None else shown,
        None if unbound is None or (bound is not None and bound >= unbound) else unbound,
        stopped,
        sum(busy.values()),
        sum(fact[1] == _RUN for fact in within),
        len({fact[4] for fact in within} - {None}),
        [(day, up, busy.get(day, 0)) for day, up in days],
        day_of(opened),
    )


def _union(runs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Stretches in which at least one run is on."""
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(runs):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def _by_day(begin: int, end: int) -> list[tuple[date, int]]:
    parts = []
    while begin < end:
        until = min(end, (begin // DAY_MS + 1) * DAY_MS)
        parts.append((day_of(begin), until - begin))
        begin = until
    return parts
