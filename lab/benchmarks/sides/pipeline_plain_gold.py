"""The pipeline's gold tables by one thread of plain Python; see pipeline_plain."""

from __future__ import annotations

import hashlib
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from itertools import pairwise
from operator import attrgetter

from benchmarks.sides.pipeline_plain import DAY_MS, Event, Life, Request, Row, day_of
from osrdyne_protocol import events as names

_HOUR_MS = 3_600_000
_PARTS = ("orphan_ms", "start_ms", "queue_ms", "run_ms", "total_ms")


def _percentile(values: Iterable[int], share: float) -> int | None:
    ordered = sorted(values)
    return ordered[math.ceil(share * len(ordered)) - 1] if ordered else None


def demand_of(requests: Iterable[Request]) -> list[Row]:
    hours: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0, 0])
    for request in requests:
        row = hours[request.key, request.seen_ms // _HOUR_MS * _HOUR_MS]
        row[0] += 1
        row[1] += request.cold
        row[2] += request.run_ms or 0
    return [(key, hour, *row, day_of(hour)) for (key, hour), row in hours.items()]


def cold_starts_of(requests: Iterable[Request], lives: Iterable[Life]) -> list[Row]:
    counts: dict[tuple[str, date], list[int]] = defaultdict(lambda: [0, 0, 0])
    waits: dict[tuple[str, date], list[int]] = defaultdict(list)
    for request in requests:
        counts[request.key, request.day][0] += 1
        counts[request.key, request.day][1] += request.cold
        until = request.done_ms if request.received_ms is None else request.received_ms
        if request.cold and until is not None:
            waits[request.key, request.day].append(until - request.seen_ms)
    for life in lives:
        counts[life.key, life.day][2] += 1
    return [
        (key, *row, sum(wait), max(wait, default=None), _percentile(wait, 0.5), _percentile(wait, 0.95), day)
        for (key, day), row in counts.items()
        for wait in (waits.get((key, day), []),)
    ]


def latency_of(requests: Iterable[Request]) -> list[Row]:
    groups: dict[tuple[str, bool, date], list[Request]] = defaultdict(list)
    for request in requests:
        if request.done_ms is not None:
            groups[request.key, request.cold, request.day].append(request)
    rows = []
    for (key, cold, day), found in groups.items():
        sums = (sum(map(attrgetter(part), found)) for part in _PARTS)
        totals = sorted(request.total_ms or 0 for request in found)
        percentiles = (_percentile(totals, share) for share in (0.5, 0.95, 0.99))
        rows.append((key, cold, len(found), *sums, *percentiles, day))
    return rows


def worker_hours_of(lives: Iterable[Life]) -> list[Row]:
    days: dict[tuple[str, date], list[int]] = defaultdict(lambda: [0, 0, 0])
    for life in lives:
        for day, up, busy in life.days:
            row = days[life.key, day]
            row[0] += up
            row[1] += busy
            row[2] += 1
    return [(key, up, busy, up - busy, lives, day) for (key, day), (up, busy, lives) in days.items()]


def failures_of(requests: Iterable[Request], events: Iterable[Event]) -> list[Row]:
    restarts: dict[str, list[int]] = defaultdict(list)
    stuck: dict[str, list[int]] = defaultdict(list)
    for event in events:
        if event.event in (names.STARTED, names.GROUP_STARTED):
            restarts[event.key].append(event.time_ms)
        elif event.event == names.GROUP_STOPPED and (event.outcome or "").startswith("stuck"):
            stuck[event.key].append(event.time_ms)
    causes: dict[tuple[str, str, str], list[Request]] = defaultdict(list)
    for request in requests:
        if request.done_ms is not None and request.outcome is not None and request.outcome != "ok":
            length = "short" if len(request.key) <= 16 else "middling" if len(request.key) <= 64 else "long"
            shape = f"{_fingerprint(request.key)} / {_fingerprint(request.request_id)} / {length} key"
            causes[
                _fingerprint(request.outcome), _exit(request, restarts[request.key], stuck[request.key]), shape
            ].append(request)
    return [_cause(cause, found) for cause, found in causes.items()]


def _cause(cause: tuple[str, str, str], found: Sequence[Request]) -> Row:
    identity = hashlib.sha256("\n".join(cause).encode()).hexdigest()[:12]
    done = [request.done_ms or 0 for request in found]
    _, key, request_id = min((request.seen_ms, request.key, request.request_id) for request in found)
    return (
        identity,
        *cause,
        len(found),
        len({request.key for request in found}),
        min(done),
        max(done),
        key,
        request_id,
    )


def _exit(one: Request, restarts: list[int], stuck: list[int]) -> str:
    until = (one.done_ms or 0) + 60_000
    if one.ended_by == names.FINISHED:
        return "answered"
    if one.received_ms is None:
        return "none"
    if one.deliveries == one.returns:
        return "gave back"
    if any(one.received_ms < time_ms <= until for time_ms in stuck):
        return "hung"
    return "crashed" if any(one.received_ms < time_ms <= until for time_ms in restarts) else "silent"


_ENDS = (names.WORKER_ENDED, names.START_FAILED)
_ERROR_CLASS = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]*\.)*[A-Z][A-Za-z0-9_]*(?:Error|Exception|Exit|Interrupt)(?=:|\Z)")


def causes_of(events: Iterable[Event]) -> list[Row]:
    groups: dict[Row, list[Event]] = defaultdict(list)
    for event in events:
        if event.event in _ENDS or (event.event == names.FINISHED and event.outcome == "error"):
            groups[_cause_of(event)].append(event)
    rows = []
    for (key, what, how, error, began, day), found in groups.items():
        last = max(found, key=lambda fact: (fact.time_ms, fact.event_id))
        example, log = (None, None) if what == "handler-error" else (_example(last), last.log and last.log[:600])
        rows.append((key, what, how, error, began, len(found), last.time_ms, example, log, day))
    return rows


def _cause_of(one: Event) -> Row:
    day = day_of(one.time_ms)
    if one.event == names.FINISHED:
        return (one.key, "handler-error", "error", (one.error or "")[:100] or None, None, day)
    raised = _raised(one)
    match = _ERROR_CLASS.match(raised) if raised is not None else None
    error = match.group()[:100] if match else None
    stuck = one.outcome == "stopped" and (one.detail or "").startswith("stopped: stuck")
    how = "stuck" if stuck else (one.outcome or "")[:80] or "unknown"
    return (one.key, one.event, how, error, {0: False, 1: True}.get(one.began), day)  # type: ignore[arg-type]


def _raised(one: Event) -> str | None:
    lines = [line for line in (one.output or "").split("\n") if _ERROR_CLASS.match(line)]
    return lines[-1] if lines else None


def _example(one: Event) -> str | None:
    lines = [line for line in (one.output or "").split("\n") if line.strip(" \t\r")]
    shown = _raised(one) or (lines[-1] if lines else one.detail)
    return None if shown is None else shown[:600]


def starts_of(events: Iterable[Event]) -> list[Row]:
    days: dict[tuple[str, date], list[Event]] = defaultdict(list)
    for event in events:
        if event.event in (names.STARTED, names.REQUEST_RECEIVED, *_ENDS) and (_good(event) or _failed(event)):
            days[event.key, day_of(event.time_ms)].append(event)
    rows = []
    for (key, day), found in days.items():
        good = max((fact.time_ms for fact in found if _good(fact)), default=None)
        failed = [fact.time_ms for fact in found if _failed(fact)]
        since = [time for time in failed if good is None or time > good]
        started = sum(fact.event == names.STARTED for fact in found)
        rows.append((key, started, len(failed), len(since), good, max(failed, default=None), day))
    return rows


def _good(one: Event) -> bool:
    return one.event in (names.STARTED, names.REQUEST_RECEIVED) or one.began == 1


def _failed(one: Event) -> bool:
    on_purpose = one.outcome == "stopped" and not (one.detail or "").startswith("stopped: stuck")
    return one.event == names.START_FAILED or (one.event == names.WORKER_ENDED and one.began == 0 and not on_purpose)


def bill_of(requests: Iterable[Request], worker_hours: Iterable[Row]) -> list[Row]:
    busy = {(row[0], row[-1]): row[2] for row in worker_hours}
    days: dict[tuple[str, date], dict[str | None, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0, 0, 0]))
    for request in requests:
        row = days[request.key, request.day][request.caller]
        row[0] += 1
        row[1] += request.cold
        row[2] += request.run_ms or 0
        if request.received_ms is not None and request.run_ms and request.done_ms is not None:
            for begin in range((request.done_ms - request.run_ms) // DAY_MS * DAY_MS, request.done_ms, DAY_MS):
                part = min(request.done_ms, begin + DAY_MS) - max(request.done_ms - request.run_ms, begin)
                days[request.key, day_of(begin)][request.caller][3] += part
    rows = []
    for (key, day), callers in days.items():
        whole, so_far = sum(row[3] for row in callers.values()), 0
        for caller, row in sorted(callers.items(), key=lambda item: (item[0] is not None, item[0] or "")):
            before, so_far = so_far, so_far + row[3]
            total = busy.get((key, day), 0)
            part = total * so_far // whole - total * before // whole if whole else 0
            rows.append((key, caller, *row[:3], part, day))
    return rows


def _fingerprint(text: str) -> str:
    hexadecimal = r"(?i)(?<![a-z0-9])(?=[a-f]*[0-9])[0-9a-f]{8,}(?![a-z0-9])"
    return re.sub("[0-9]+", "N", re.sub(hexadecimal, "H", text))[:80]


def key_classes_of(requests: Iterable[Request]) -> list[Row]:
    by_key: dict[str, list[Request]] = defaultdict(list)
    for request in requests:
        by_key[request.key].append(request)
    total = sum(map(len, by_key.values()))
    rows: list[Row] = []
    before = 0
    for rank, (key, found) in enumerate(sorted(by_key.items(), key=lambda item: (-len(item[1]), item[0])), start=1):
        times = sorted(request.seen_ms for request in found)
        gap = _percentile((later - time for time, later in pairwise(times)), 0.5)
        rare = len(found) < 10 or (gap is not None and gap >= DAY_MS)
        name = "rare" if rare else "heavy" if before < total * 0.5 else "steady"
        before += len(found)
        cold = sum(request.cold for request in found)
        run_ms = sum(request.run_ms or 0 for request in found)
        days = len({request.day for request in found})
        rows.append((key, name, len(found), cold, days, run_ms, len(found) / total, gap, rank))
    return rows


def forecast_of(demand: Sequence[Row], classes: Iterable[Row]) -> list[Row]:
    if not demand:
        return []
    class_of = {row[0]: row[1] for row in classes}
    first, last = min(row[-1] for row in demand), max(row[-1] for row in demand)
    following = last + timedelta(days=1)
    all_days = [first + timedelta(days=number) for number in range((last - first).days + 1)]
    if len(all_days) >= 14:
        all_days = [day for day in all_days if (following - day).days % 7 == 0]
    sums: dict[tuple[str, date, int], list[int]] = defaultdict(lambda: [0, 0])
    for key, hour, requests, _, run_ms, day in demand:
        found = sums[class_of[key], day, hour // _HOUR_MS % 24]
        found[0] += requests
        found[1] += run_ms
    rows: list[Row] = []
    for name in sorted(set(class_of.values())):
        for hour in range(24):
            on = [sums.get((name, day, hour), [0, 0]) for day in all_days]
            counts, busy = [float(hour[0]) for hour in on], [hour[1] / _HOUR_MS for hour in on]
            unsure = 1 + 1 / len(on)
            mean, workers = sum(counts) / len(on), sum(busy) / len(on)
            high = mean + 1.645 * math.sqrt(max(_variance(counts), mean) * unsure)
            workers_high = workers + 1.645 * math.sqrt(_variance(busy) * unsure + workers)
            rows.append((name, following, hour, mean, high, workers, workers_high, len(on)))
    return rows


def _variance(values: Sequence[float]) -> float:
    if len(values) < 2:
        return 0.0
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / (len(values) - 1)
