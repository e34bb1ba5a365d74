"""Durations in settings: a number of seconds, or ISO 8601 text such as `PT10M`."""

from __future__ import annotations

import math
import re

_ISO_8601 = re.compile(
    r"P(?!$)(?:(?P<days>\d+(?:\.\d+)?)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+(?:\.\d+)?)H)?(?:(?P<minutes>\d+(?:\.\d+)?)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
_SECONDS = {"days": 86_400.0, "hours": 3_600.0, "minutes": 60.0, "seconds": 1.0}


def parse_seconds(value: object) -> float:
    """Return a duration in seconds.

    Takes a finite number of seconds that is not negative, or ISO 8601 text of days, hours, minutes and
    seconds. Raises ValueError that says what was found and what would be right.
    """
    expected = "give seconds (90 or 1.5) or ISO 8601 text ('PT1M30S')"
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{value!r} is no duration; {expected}")
    if isinstance(value, str):
        match = _ISO_8601.fullmatch(value)
        if match is None:
            raise ValueError(f"{value!r} is no duration; {expected}")
        return sum(_SECONDS[unit] * float(number) for unit, number in match.groupdict().items() if number)
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{value!r} is no duration of zero or more seconds; {expected}")
    return float(value)
