"""Windows of the week in which a key is kept active without calls: days and times of day, in UTC. Pure.

In settings a window is one text, `mon,tue,fri 10:00-12:30`: that passes unchanged through YAML, TOML and JSON.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

#: In the order of the week.
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

_TIME = r"((?:[01]\d|2[0-3]):[0-5]\d|24:00)"
_WINDOW = re.compile(rf"([a-z,]+) {_TIME}-{_TIME}")


@dataclass(frozen=True, slots=True)
class Window:
    """The same hours of some days of every week, in UTC. One that spans midnight is two."""

    #: Names out of `DAYS`.
    days: tuple[str, ...]
    #: First minute of the day, and the first one after it: 0 to 1440.
    begin: int
    end: int


def parse_window(value: object) -> Window:
    """Read a window. Raises ValueError that says what was found and what would be right."""
    match = _WINDOW.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{value!r} is not a window; give days and times in UTC, as in 'mon,tue,fri 10:00-12:30'")
    days = tuple(match[1].split(","))
    if len(set(days) & set(DAYS)) < len(days):
        raise ValueError(f"{match[1]!r} are not days, each once; give some of {','.join(DAYS)}")
    begin, end = (60 * int(time[:2]) + int(time[3:]) for time in match.groups()[1:])
    if begin >= end:
        raise ValueError(f"{match[3]} is not after {match[2]}; a window that spans midnight is two")
    return Window(days, begin, end)
