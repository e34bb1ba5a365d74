"""Which keys are kept active now, and when the next window begins. Pure; wall time is an argument, in
milliseconds since the Unix epoch.

Only windows depend on wall time: people mean hours of the day. How long a key is kept is returned as milliseconds
from now.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping

from osrdyne_pool.settings import Delays
from osrdyne_pool.windows import DAYS, parse_window

#: In milliseconds: with whole numbers, a window begins exactly on time.
_MINUTE_MS = 60_000
_DAY_MS = 24 * 60 * _MINUTE_MS
_WEEK_MS = 7 * _DAY_MS
#: The Unix epoch was this many milliseconds into its week.
_EPOCH_IN_WEEK_MS = DAYS.index("thu") * _DAY_MS


class Schedule:
    """The windows of all keys, through the week."""

    def __init__(self, overrides: Mapping[str, Delays]) -> None:
        #: Begin and end in milliseconds of the week, and the key.
        self._windows = sorted(
            (day + window.begin * _MINUTE_MS, day + window.end * _MINUTE_MS, key)
            for key, delays in overrides.items()
            for window in map(parse_window, delays.warm)
            for day in (DAYS.index(name) * _DAY_MS for name in window.days)
        )
        self._begins = sorted({begin for begin, _, _ in self._windows})

    def open(self, now_ms: int) -> dict[str, int]:
        """Return the keys that have a window now, and the milliseconds until it ends."""
        at = (now_ms + _EPOCH_IN_WEEK_MS) % _WEEK_MS
        left: dict[str, int] = {}
        for begin, end, key in self._windows:
            if begin > at:
                break
            if at < end:
                left[key] = max(left.get(key, 0), end - at)
        return left

    def next(self, now_ms: int) -> int | None:
        """Return the milliseconds until a window next begins; None where there is none."""
        if not self._begins:
            return None
        at = (now_ms + _EPOCH_IN_WEEK_MS) % _WEEK_MS
        place = bisect.bisect_right(self._begins, at)
        return self._begins[place] - at if place < len(self._begins) else self._begins[0] + _WEEK_MS - at
