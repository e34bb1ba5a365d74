"""Policies that are compared: each says when, after a key's last activity, its group is stopped and started again.

A request is cold when it finds no bound queue (the design's definition): at or past the unbind delay, and in no warm
window. It starts its group when that has been stopped too: a stop delay later. Between the two it is an orphan, but
waits for no start. Worker time is kept time: unbind and stop delay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from osrdyne_pipeline.recommendation.calls import Calls, Floats
from osrdyne_pipeline.recommendation.warm import Cells, cells_in
from osrdyne_pool.settings import PoolSettings


@dataclass(frozen=True)
class KeepAlivePolicy:
    """Delays of every key in seconds, by number of the key."""

    unbind: Floats
    stop: Floats
    #: From the last activity until the group is started again, unless 0: then it is kept on.
    pause: Floats
    #: Number of the key -> the cells in which its group is kept warm.
    warm: Mapping[int, Cells] = field(default_factory=dict)
    #: Number of the key -> rows of begin and end, in seconds after its last activity, in which its group is kept again.
    prewarm: Mapping[int, Floats] = field(default_factory=dict)


def fixed(keys: int, unbind: float, stop: float) -> KeepAlivePolicy:
    """The same delays for all keys."""
    return KeepAlivePolicy(np.full(keys, unbind), np.full(keys, stop), np.zeros(keys))


def of_settings(keys: Sequence[str], pool: PoolSettings) -> KeepAlivePolicy:
    """What the settings of a pool say. Windows are taken to the nearest cell."""
    delays = [pool.delays(key) for key in keys]
    return KeepAlivePolicy(
        np.array([each.unbind_delay for each in delays], np.float64),
        np.array([each.stop_delay for each in delays], np.float64),
        np.zeros(len(keys)),
        {number: cells_in(each.warm) for number, each in enumerate(delays) if each.warm},
        {number: np.array(each.prewarm, np.float64) for number, each in enumerate(delays) if each.prewarm},
    )


#: Of the hybrid histogram policy (Shahrad et al., "Serverless in the Wild", ATC 2020): minutes that it covers, the
#: percentiles at which the group is started again and let go, the margin on both, and the least coefficient of
#: variation of the bins at which a histogram says anything.
RANGE_MINUTES = 240
HEAD, TAIL = 0.05, 0.99
MARGIN = 0.10
REPRESENTATIVE = 2.0


def histogram(calls: Calls, since: float, until: float) -> KeepAlivePolicy:
    """The hybrid histogram policy, from the idle times of [since, until), without its forecast by ARIMA.

    Where most idle times are out of bounds, or the bins are too even to say anything, it keeps a group for its whole
    range, which is the paper's fallback. The stop delay is part of what is kept.
    """
    keys = len(calls.keys)
    pause, keep = np.zeros(keys), np.full(keys, RANGE_MINUTES * 60.0)
    idle = calls.begin - calls.before
    seen = (calls.begin >= since) & (calls.begin < until) & np.isfinite(idle)
    minutes = np.minimum(idle[seen] // 60, RANGE_MINUTES).astype(np.int64)
    bins = np.zeros((keys, RANGE_MINUTES + 1))
    np.add.at(bins, (calls.key[seen], minutes), 1.0)
    bins[:, 0] += np.bincount(
        calls.key[(calls.begin >= since) & (calls.begin < until)], _repeats(calls, since, until), keys
    )
    inside = bins[:, :RANGE_MINUTES]
    count = inside.sum(axis=1)
    mean = inside.mean(axis=1)
    variation = np.divide(inside.std(axis=1), mean, out=np.zeros(keys), where=mean > 0)
    usable = (variation >= REPRESENTATIVE) & (count >= bins[:, RANGE_MINUTES])
    share = np.cumsum(inside, axis=1) / np.maximum(count, 1)[:, None]
    head, tail = (share >= HEAD).argmax(axis=1), (share >= TAIL).argmax(axis=1) + 1
    pause[usable] = np.floor(head[usable] * (1 - MARGIN)) * 60.0
    keep[usable] = np.minimum(np.ceil(tail[usable] * (1 + MARGIN)), RANGE_MINUTES) * 60.0
    return KeepAlivePolicy(keep, np.zeros(keys), pause)


def _repeats(calls: Calls, since: float, until: float) -> Floats:
    """Requests within stretches: idle for less than a minute."""
    seen = (calls.begin >= since) & (calls.begin < until)
    return (calls.requests[seen] - 1).astype(np.float64)
