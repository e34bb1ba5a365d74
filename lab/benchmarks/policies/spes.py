"""SPES (Lee et al., "Towards Optimizing Performance-Resource Trade-Off for Serverless Functions", ICDE 2024).

Written again from the paper, with its parameters: keys are sorted by their waiting times (idle minutes between runs of
minutes with calls), and each kind has a rule for when the next call is expected. A group is loaded from 2 minutes
before until 2 minutes after that, and let go when its kind's patience is over. Time is in whole minutes, as there.

Left out is what needs the functions of one application (correlated functions): a key stands for an application here.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from osrdyne_pipeline.recommendation.calls import DAY, Calls, Integers
from osrdyne_pipeline.recommendation.replay import ReplayOutcome

PREWARM = 2
#: Idle minutes after which a group is let go, unless a call is expected.
PATIENCE = {"regular": 1, "nearly regular": 1, "dense": 5, "successive": 1, "pulsed": 3, "possible": 1, "unknown": 1}
LEAST_WAITS = 3
MODES, MODES_COVER = 3, 0.9
DENSE_MINUTES, DENSE_SHARE = 5, 90
SUCCESSIVE_MINUTES, SUCCESSIVE_CALLS = 10, 11
WARM_IDLE = 0.001
#: What is expected within a range, not at single minutes, where the modes are this close.
CLOSE_MODES, MOST_MODES = 10, 5
SPREAD = 2.0
#: First days that may be forgotten, and the share of the training that is not validation.
FORGET_DAYS, LEARN_SHARE = 6, 0.75
#: Weight of cold starts beside waste when a kind is chosen by validation.
ALPHA = 0.5
ADAPT_FROM = 5
#: Runs that are expected after a regular call: one may be left out.
REPEATS = 2


@dataclass(frozen=True)
class Runs:
    """Runs of minutes with calls of one key: first and last minute, and calls. Minutes since the Unix epoch."""

    first: Integers
    last: Integers
    calls: Integers

    @property
    def waits(self) -> Integers:
        return self.first[1:] - self.last[:-1] - 1

    def between(self, since: int, until: int) -> Runs:
        seen = (self.first >= since) & (self.first < until)
        return Runs(self.first[seen], self.last[seen], self.calls[seen])


@dataclass
class Rule:
    """What is known of one key, and what is learnt as it goes on."""

    kind: str
    expected: list[float] = field(default_factory=list)
    spread: float = 0.0
    modes: Counter[int] = field(default_factory=Counter)
    seen: list[int] = field(default_factory=list)

    def learn(self, wait: int) -> None:
        """Adapt to a waiting time that came after the training."""
        self.seen.append(wait)
        self.modes[wait] += 1
        if len(self.seen) < ADAPT_FROM:
            return
        if self.kind == "regular":
            found = float(np.median(self.seen))
            if abs(found - self.expected[0]) > max(1.0, self.spread):
                self.expected[0] = (self.expected[0] + found) / 2
        elif self.kind == "dense":
            high = max(self.seen)
            self.expected = [min(self.seen), high if high <= DENSE_MINUTES else self.expected[1]]
        elif self.kind in ("possible", "unknown"):
            self.expected = _often(self.modes)
            self.kind = "possible" if self.expected else self.kind

    def ranges(self, last: int) -> list[tuple[float, float]]:
        """Return the minutes in which the next call is expected, `last` being the last one with a call."""
        at = last + 1
        if self.kind == "regular":
            spread = min(self.spread, SPREAD)
            steps = [at + n * (self.expected[0] + 1) + self.expected[0] for n in range(REPEATS)]
            return [(step - spread, step + spread) for step in steps]
        if not self.expected:
            return []
        close = self.kind == "possible" and self.expected[-1] - self.expected[0] <= CLOSE_MODES
        if self.kind == "dense" or close:
            return [(at + self.expected[0], at + self.expected[-1])]
        return [(at + wait, at + wait) for wait in self.expected]


def spes(calls: Calls, begin: float, since: float, until: float) -> ReplayOutcome:
    """Learn from [begin, since) and return what SPES does to [since, until)."""
    keys = len(calls.keys)
    requests, cold, hours = np.zeros(keys, np.int64), np.zeros(keys, np.int64), np.zeros(keys)
    now = (calls.begin >= since) & (calls.begin < until)
    requests += np.bincount(calls.key[now], calls.requests[now], keys).astype(np.int64)
    minutes = [int(at // 60) for at in (begin, since, until)]
    edges = np.searchsorted(calls.key, np.arange(keys + 1))
    for number, (low, high) in enumerate(pairwise(edges)):
        runs = _runs(calls, low, high)
        found = rule(runs.between(minutes[0], minutes[1]), minutes[0], minutes[1])
        one = _simulated(runs, found, minutes[1], minutes[2], adapt=True)
        cold[number], hours[number] = one[0], (one[1] + one[2]) / 60
    return ReplayOutcome(requests, cold, cold, hours, cold)


def _runs(calls: Calls, low: int, high: int) -> Runs:
    first, last = (calls.begin[low:high] // 60).astype(np.int64), (calls.end[low:high] // 60).astype(np.int64)
    if not len(first):
        return Runs(first, last, calls.requests[low:high])
    fresh = np.flatnonzero(np.concatenate([[True], first[1:] > last[:-1] + 1]))
    return Runs(
        first[fresh], last[np.append(fresh[1:] - 1, len(last) - 1)], np.add.reduceat(calls.requests[low:high], fresh)
    )


def rule(runs: Runs, since: int, until: int) -> Rule:
    """Return the rule of a key from its runs within [since, until)."""
    day = DAY // 60
    for forget in range(FORGET_DAYS + 1):
        begin = since + forget * day
        part = runs.between(begin, until)
        kind = _kind(part, begin, until)
        if kind is not None:
            return _made(kind, part)
    return _by_validation(runs, since, until)


def _kind(runs: Runs, since: int, until: int) -> str | None:
    if not len(runs.first):
        return None
    used = int((np.minimum(runs.last, until - 1) - runs.first + 1).sum())
    if until - since - used < WARM_IDLE * (until - since):
        return "warm"
    waits = runs.waits
    if len(waits) > LEAST_WAITS and (_even(waits) or _even(_joined(waits))):
        return "regular"
    if len(waits) >= LEAST_WAITS:
        counts = np.sort(np.unique(waits, return_counts=True)[1])[::-1]
        if counts[0] > 1 and counts[:MODES].sum() >= MODES_COVER * len(waits):
            return "nearly regular"
    if len(waits) and np.percentile(waits, DENSE_SHARE) < DENSE_MINUTES:
        return "dense"
    if (runs.last - runs.first + 1).min() >= SUCCESSIVE_MINUTES or runs.calls.min() >= SUCCESSIVE_CALLS:
        return "successive"
    return None


def _even(waits: Integers) -> bool:
    low, high = np.percentile(waits, [5, 95])
    return bool(high - low < 1 or waits.std() <= 0.01 * waits.mean())


def _joined(waits: Integers) -> Integers:
    """Add short waits to their neighbours where a call came between two that a timer made."""
    values, counts = np.unique(waits, return_counts=True)
    mode = int(values[counts.argmax()])
    short = waits <= 0.25 * mode
    if mode < 500 or counts.max() < len(waits) / 2 or short.mean() > 0.3:
        return waits
    found, left = [], 0
    for wait, small in zip(waits.tolist(), short.tolist(), strict=True):
        if small:
            left += wait
        else:
            found.append(wait + left if wait + left <= mode else wait)
            left = 0
    return np.array(found, np.int64)


def _made(kind: str, runs: Runs) -> Rule:
    waits = runs.waits
    modes = Counter(waits.tolist())
    if kind == "regular":
        return Rule(kind, [float(np.median(waits))], float(waits.std()), modes)
    if kind == "nearly regular":
        often = [wait for wait, count in modes.most_common(MODES) if count > 0.1 * len(waits)]
        return Rule(kind, sorted(map(float, often)), 0.0, modes)
    if kind == "dense":
        often = _often(modes) or [float(waits.min()), float(min(MODES, waits.max()))]
        return Rule(kind, [often[0], min(10.0, often[-1])], 0.0, modes)
    if kind == "possible":
        return Rule(kind, _often(modes), 0.0, modes)
    return Rule(kind, modes=modes)


def _often(modes: Counter[int]) -> list[float]:
    return sorted(float(wait) for wait, count in modes.most_common(MOST_MODES) if count > 1)


def _by_validation(runs: Runs, since: int, until: int) -> Rule:
    """Return the rule of a key without a kind: the better one, on the last part of the training."""
    begin = since + int((until - since) * LEARN_SHARE)
    possible = _made("possible", runs)
    if not len(runs.between(begin, until).first):
        return possible if possible.expected else Rule("unknown", modes=possible.modes)
    if not possible.expected:
        return Rule("pulsed", modes=possible.modes)
    results = [_simulated(runs, rule, begin, until, adapt=False) for rule in (Rule("pulsed"), _made("possible", runs))]
    (cold_a, waste_a, _), (cold_b, waste_b, _) = results
    if cold_a <= cold_b and waste_a <= waste_b:
        return Rule("pulsed", modes=possible.modes)
    if cold_b <= cold_a and waste_b <= waste_a:
        return possible
    fewer, other = (results[0], results[1]) if cold_a < cold_b else (results[1], results[0])
    gain = ALPHA * (other[0] - fewer[0]) / max(fewer[0], 1e-9)
    cost = (fewer[1] - other[1]) / max(other[1], 1e-9)
    chosen = fewer if gain > cost else other
    return Rule("pulsed", modes=possible.modes) if chosen is results[0] else possible


def _simulated(runs: Runs, found: Rule, since: int, until: int, *, adapt: bool) -> tuple[int, int, int]:
    """Return cold starts, idle loaded minutes and minutes with calls of [since, until)."""
    cold = idle = 0
    at = int(np.searchsorted(runs.first, since)) - 1
    used = int(np.maximum(np.minimum(runs.last, until - 1) - np.maximum(runs.first, since) + 1, 0).sum())
    first, last = runs.first.tolist(), runs.last.tolist()
    if found.kind == "warm":
        return 0, until - since - used, used
    if at < 0 and len(first) and since <= first[0] < until:
        cold += 1
    for number in range(max(at, 0), len(first)):
        end = last[number]
        if end >= until:
            break
        following = first[number + 1] if number + 1 < len(first) else until + 1
        loaded, at_end = _loaded(found, end, min(following, until), since)
        idle += loaded
        if following < until:
            cold += not at_end
            if adapt and following >= since:
                found.learn(following - end - 1)
    return cold, idle, used


def _loaded(found: Rule, last: int, following: int, since: int) -> tuple[int, bool]:
    """Return the idle minutes between two runs in which the group is loaded, and whether it is when the second begins.

    What a minute decides counts from the next one on.
    """
    if following <= last + 1:
        return 0, True
    stays = [(last, last + PATIENCE[found.kind] - 1)]
    stays += [(math.ceil(a - PREWARM), math.floor(b + PREWARM)) for a, b in found.ranges(last)]
    low, high = max(last, since - 1), following - 2
    loaded, reach = 0, low - 1
    for begin, end in sorted(stays):
        begin, stop = max(begin, reach + 1), min(end, high)
        if stop >= begin:
            loaded += stop - begin + 1
            reach = stop
    return loaded, any(begin <= following - 1 <= end for begin, end in stays)


def kinds(calls: Calls, since: float, until: float) -> dict[str, int]:
    """Return how many keys are of each kind, learnt from [since, until)."""
    edges = np.searchsorted(calls.key, np.arange(len(calls.keys) + 1))
    low, high = int(since // 60), int(until // 60)
    spans = pairwise(edges)
    return dict(Counter(rule(_runs(calls, *span).between(low, high), low, high).kind for span in spans))
