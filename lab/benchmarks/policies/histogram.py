"""The hybrid histogram policy (Shahrad et al., "Serverless in the Wild", ATC 2020), learning from each idle time.

For each key a histogram of idle times in minutes, up to 4 hours. It starts the group again 10 % before the 5th
percentile and lets it go 10 % after the 99th. Where the bins are too even (a coefficient of variation below 2) it keeps
the group for the whole range. Where most idle times are beyond the range, it forecasts the next one, with 15 % of
margin on both sides. The paper's forecast is ARIMA; ours is its simplest member, an autoregression of order 1.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from benchmarks.policies.outcome import KeepTimes
from osrdyne_pipeline.recommendation.calls import Calls, Floats, Integers
from osrdyne_pipeline.recommendation.policies import HEAD, MARGIN, RANGE_MINUTES, REPRESENTATIVE, TAIL

FORECAST_MARGIN = 0.15
OUT_OF_BOUNDS = 0.5
#: Idle times that a forecast looks back on.
FORECAST_FROM = 50


def hybrid_histogram(calls: Calls) -> KeepTimes:
    """Return for each stretch from when to when after its end the group is kept, as known at its end."""
    pause, keep = np.zeros(len(calls.key)), np.full(len(calls.key), RANGE_MINUTES * 60.0)
    edges = np.searchsorted(calls.key, np.arange(len(calls.keys) + 1))
    for low, high in pairwise(edges):
        if high > low:
            pause[low:high], keep[low:high] = _key(
                calls.begin[low + 1 : high] - calls.end[low : high - 1], calls.requests[low:high]
            )
    return KeepTimes(pause, keep)


def _key(idle: Floats, requests: Integers) -> tuple[Floats, Floats]:
    pause, keep = np.zeros(len(requests)), np.full(len(requests), RANGE_MINUTES * 60.0)
    bins, beyond = np.zeros(RANGE_MINUTES), 0
    minutes = (idle // 60).astype(int)
    value = (0.0, RANGE_MINUTES * 60.0)
    for number in range(len(requests)):
        bins[0] += requests[number] - 1
        if number:
            if minutes[number - 1] < RANGE_MINUTES:
                bins[minutes[number - 1]] += 1
            else:
                beyond += 1
        # Later, one idle time more or less makes no difference.
        if number < 64 or number % (number // 64) == 0:
            value = _says(bins, beyond, idle[max(0, number - FORECAST_FROM) : number])
        pause[number], keep[number] = value
    return pause, keep


def _says(bins: Floats, beyond: int, idle: Floats) -> tuple[float, float]:
    count = bins.sum()
    if beyond and beyond >= OUT_OF_BOUNDS * (count + beyond):
        expected = _forecast(idle)
        return expected * (1 - FORECAST_MARGIN), expected * (1 + FORECAST_MARGIN)
    if not count or bins.std() < REPRESENTATIVE * bins.mean():
        return 0.0, RANGE_MINUTES * 60.0
    share = np.cumsum(bins) / count
    head, tail = int((share >= HEAD).argmax()), int((share >= TAIL).argmax()) + 1
    return np.floor(head * (1 - MARGIN)) * 60.0, min(np.ceil(tail * (1 + MARGIN)), RANGE_MINUTES) * 60.0


def _forecast(idle: Floats) -> float:
    """Return the next idle time, of those before."""
    mean = float(idle.mean())
    if len(idle) < 4 or not idle.std():
        return mean
    before, after = idle[:-1] - mean, idle[1:] - mean
    slope = float(np.clip((before * after).sum() / max((before**2).sum(), 1e-9), -0.95, 0.95))
    return max(60.0, mean + slope * (float(idle[-1]) - mean))
