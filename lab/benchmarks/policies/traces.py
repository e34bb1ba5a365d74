"""Calls of the shape that is published for Azure Functions: timers, days and nights, bursts, many rare keys, few busy.

Everything follows from a seed. The shares and rates are parameters with the figures of "Serverless in the Wild" (ATC
2020) as defaults; docs/explain/policies.md has them as a table. A key stands for what the paper calls an application.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from osrdyne_pipeline.recommendation.calls import DAY, MERGE_SECONDS, Calls, Floats, Integers

HOUR = 3600.0
#: A Monday, 00:00 UTC: when each trace begins.
MONDAY = 1_372_636_800.0
#: Demand of people is drawn by stretches of this many seconds.
STEP_SECONDS = 600.0
PERIODS = np.array([60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400], np.float64)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a trace is made of. Shares are parts of all keys; those of the kinds add up to 1."""

    keys: int = 300
    days: int = 30
    #: Calls a day of a key at these shares of all keys: 45 % of applications are called at most once an hour, 81 % at
    #: most once a minute. What comes more often than every 20 s makes no difference to a policy and is left out.
    shares: tuple[float, ...] = (0.0, 0.45, 0.81, 1.0)
    calls_a_day: tuple[float, ...] = (0.2, 24.0, 1440.0, 4320.0)
    #: Kinds: timers; people by day and week; people at fixed hours; bursts; the rest comes at any time.
    timers: float = 0.29
    people: float = 0.33
    hours_of_day: float = 0.08
    bursts: float = 0.18
    #: Of timers: those whose calls vary by some percent of the period, and those that leave some out.
    loose_timers: float = 0.3
    gappy_timers: float = 0.2
    #: Of keys: those whose demand grows or shrinks, up to threefold in all; that begin, end, or change their timer.
    drifting: float = 0.15
    new: float = 0.06
    dying: float = 0.06
    changed_timers: float = 0.08
    #: Hours that the days of people are shifted by: time zones.
    zones: tuple[float, ...] = (0.0, 1.0, 5.5, -5.0, -8.0)
    #: Seconds that a call takes: a log-normal over keys (mean and sigma of the logarithm), and one over calls.
    run: tuple[float, float] = (-0.38, 2.36)
    run_spread: float = 0.5
    longest_run: float = 300.0


def make(seed: int, shape: Shape = Shape()) -> Calls:
    """Return the calls of a trace, from a Monday on."""
    rng = np.random.default_rng([47, seed])
    rank = rng.permutation(shape.keys)
    level = (rank + rng.random(shape.keys)) / shape.keys
    rates = np.exp(np.interp(level, shape.shares, np.log(shape.calls_a_day)))
    kinds = rng.choice(5, shape.keys, p=_kinds(shape))
    holiday = int(rng.integers(0, shape.days) // 7 * 7 + rng.integers(0, 5))
    begins = [
        _key(np.random.default_rng([48, seed, number]), shape, int(kinds[number]), float(rates[number]), holiday)
        for number in range(shape.keys)
    ]
    return stretches(tuple(f"k{number:04}" for number in range(shape.keys)), begins, _runs(rng, shape, begins), shape)


def _kinds(shape: Shape) -> Floats:
    named = np.array([shape.timers, shape.people, shape.hours_of_day, shape.bursts])
    return np.append(named, 1 - named.sum())


def _runs(rng: np.random.Generator, shape: Shape, begins: list[Floats]) -> list[Floats]:
    mean, sigma = shape.run
    usual = np.exp(rng.normal(mean, sigma, len(begins)))
    return [
        np.minimum(gap * np.exp(rng.normal(0, shape.run_spread, len(at))), shape.longest_run)
        for gap, at in zip(usual, begins, strict=True)
    ]


def _key(rng: np.random.Generator, shape: Shape, kind: int, rate: float, holiday: int) -> Floats:
    """Return when one key is called, in seconds after the trace's begin."""
    until = shape.days * float(DAY)
    begin, end = 0.0, until
    fate = rng.random()
    if fate < shape.new:
        begin = rng.uniform(0.2, 0.9) * until
    elif fate < shape.new + shape.dying:
        end = rng.uniform(0.2, 0.9) * until
    if kind == 0:
        found = _timer(rng, shape, rate, until)
    elif kind == 2:
        found = _hours(rng, shape, rate, until, holiday)
    else:
        trend = rng.uniform(-np.log(3), np.log(3)) if rng.random() < shape.drifting else 0.0
        calls = 1.0
        if kind == 3:
            calls = float(np.exp(rng.uniform(np.log(3), np.log(60))))
        weight = _weight(rng, shape, holiday, by_day=kind != 4)
        weight = weight * np.exp(trend * (np.arange(len(weight)) / len(weight) - 0.5))
        found = _arrivals(rng, weight / weight.mean() * rate / calls / DAY)
        if kind == 3:
            found = _spread(rng, found, calls)
    return np.sort(found[(found >= begin) & (found < end)])


def _weight(rng: np.random.Generator, shape: Shape, holiday: int, *, by_day: bool) -> Floats:
    """Demand of each step beside the others; of what comes at any time it is 1."""
    at = (np.arange(int(shape.days * DAY / STEP_SECONDS)) + 0.5) * STEP_SECONDS
    if not by_day:
        return np.ones(len(at))
    local = at / HOUR + float(rng.choice(shape.zones))
    depth, sharp = rng.uniform(0.5, 1.0), rng.uniform(1.0, 4.0)
    hours = (1 + depth * np.cos(2 * np.pi * (local - 14) / 24)) ** sharp
    day = np.floor(local / 24)
    free = (day % 7 >= 5) | (day == holiday)
    return np.asarray(hours * np.where(free, rng.uniform(0.05, 1.0), 1.0))


def _arrivals(rng: np.random.Generator, rate: Floats) -> Floats:
    """Return arrivals by chance, of a rate (calls a second) for each step."""
    counts = rng.poisson(rate * STEP_SECONDS)
    return np.asarray((np.repeat(np.arange(len(rate)), counts) + rng.random(counts.sum())) * STEP_SECONDS)


def _spread(rng: np.random.Generator, starts: Floats, calls: float) -> Floats:
    """Return bursts: each start is followed by some more calls, seconds to minutes apart."""
    sizes = rng.geometric(1 / calls, len(starts))
    gaps = rng.exponential(np.exp(rng.uniform(np.log(5), np.log(240))), sizes.sum())
    first = np.cumsum(sizes) - sizes
    gaps[first] = 0.0
    total = np.cumsum(gaps)
    return np.asarray(np.repeat(starts - total[first], sizes) + total)


def _timer(rng: np.random.Generator, shape: Shape, rate: float, until: float) -> Floats:
    period = float(PERIODS[np.abs(np.log(PERIODS * rate / DAY)).argmin()])
    edges = [0.0, until]
    if rng.random() < shape.changed_timers:
        edges = [0.0, rng.uniform(0.2, 0.9) * until, until]
    parts = []
    for number, (begin, end) in enumerate(pairwise(edges)):
        each = period if number == 0 else float(rng.choice(PERIODS[4:]))
        parts.append(np.arange(begin + rng.uniform(0, each), end, each))
    found = np.concatenate(parts)
    how = rng.random()
    if how < shape.loose_timers:
        found = found + rng.normal(0, rng.uniform(0.02, 0.10) * period, len(found))
    else:
        found = found + rng.exponential(2.0, len(found))
        if how < shape.loose_timers + shape.gappy_timers:
            found = found[rng.random(len(found)) > rng.uniform(0.05, 0.3)]
    return np.asarray(found)


def _hours(rng: np.random.Generator, shape: Shape, rate: float, until: float, holiday: int) -> Floats:
    """Return calls at fixed times of working days, some minutes early or late."""
    times = max(1, min(24, round(rate)))
    at = rng.uniform(6, 20, times) * HOUR - float(rng.choice(shape.zones)) * HOUR
    days = np.arange(int(until // DAY))
    days = days[(days % 7 < 5) & (days != holiday)] if rng.random() < 0.8 else days
    found = (days[:, None] * DAY + at[None, :]).ravel()
    found = found[rng.random(len(found)) > 0.05]
    return np.asarray(found + rng.normal(0, rng.uniform(60, 900), len(found)))


def stretches(keys: tuple[str, ...], begins: list[Floats], runs: list[Floats], shape: Shape) -> Calls:
    """Return calls (seconds after the trace's begin, and how long each takes) as stretches of activity."""
    columns: list[tuple[Integers, Floats, Floats, Integers]] = []
    last = shape.days * float(DAY)
    for number, (begin, run) in enumerate(zip(begins, runs, strict=True)):
        begin, run = begin[begin < last], run[begin < last]
        if not len(begin):
            continue
        reach = np.maximum.accumulate(np.minimum(begin + run, last))
        first = np.flatnonzero(np.concatenate([[True], begin[1:] - reach[:-1] >= MERGE_SECONDS]))
        ends = reach[np.append(first[1:] - 1, len(begin) - 1)]
        counts = np.diff(np.append(first, len(begin)))
        columns.append((np.full(len(first), number), begin[first], ends, counts))
    key, begin, end, requests = (np.concatenate(column) for column in zip(*columns, strict=True))
    return Calls.of(keys, key, begin + MONDAY, end + MONDAY, requests).part(MONDAY, MONDAY + last)
