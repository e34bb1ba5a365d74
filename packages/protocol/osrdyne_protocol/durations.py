"""Durations in settings, a number of seconds or ISO 8601 text such as `PT10M`; and the timeouts of calls."""

from __future__ import annotations

import math
import re
import reprlib
from numbers import Real
from typing import Any

from osrdyne_protocol.errors import InvalidTimeout

_ISO_8601 = re.compile(
    r"P(?!$)(?:(?P<days>\d+(?:\.\d+)?)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+(?:\.\d+)?)H)?(?:(?P<minutes>\d+(?:\.\d+)?)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
_SECONDS = {"days": 86_400.0, "hours": 3_600.0, "minutes": 60.0, "seconds": 1.0}


def parse_seconds(value: object) -> float:
    """Return a duration in seconds.

    Takes a number of seconds that is not negative, or ISO 8601 text of days, hours, minutes and seconds; either of
    317 years (10,000,000,000 seconds) at most. Raises ValueError that says what was found and what would be right.
    """
    expected = "give seconds (90 or 1.5) or ISO 8601 text ('PT1M30S')"
    found = reprlib.repr(value)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{found} is not a duration; {expected}")
    if isinstance(value, str):
        match = _ISO_8601.fullmatch(value)
        if match is None:
            raise ValueError(f"{found} is not a duration; {expected}")
        seconds = sum(_SECONDS[unit] * float(number) for unit, number in match.groupdict().items() if number)
    else:
        seconds = value
    if not 0 <= seconds < math.inf:
        raise ValueError(f"{found} is not a duration of zero or more seconds; {expected}")
    if seconds > LONGEST_TIMEOUT_SECONDS:
        raise ValueError(f"{found} is longer than 317 years; {expected}")
    return float(seconds)


#: Seconds, about 317 years. A timeout of more has no end, and no setting is longer: clocks of some systems end before.
LONGEST_TIMEOUT_SECONDS = 1e10


def timeout_of(value: Any, name: str = "timeout") -> float:
    """Return the seconds of a timeout; `math.inf` for one without an end.

    All packages read their timeouts by this. Raises InvalidTimeout for what is not a number above zero.
    """
    seconds = math.nan
    is_number = isinstance(value, Real) and value is not True
    if is_number:
        try:
            seconds = float(value)
        except OverflowError:
            value = seconds = math.inf if value > 0 else -math.inf
    if not seconds > 0:
        said = f"{name}={reprlib.repr(value)} is not a number of seconds above 0"
        raise InvalidTimeout(f"{said}; math.inf is a wait without an end")
    return seconds if seconds <= LONGEST_TIMEOUT_SECONDS else math.inf
