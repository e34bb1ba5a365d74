"""Weather as a traveller would name it: three words in place of three measurements.

Reads nothing, writes nothing. The limits are round numbers chosen so that each class holds enough hours to
learn from: an estimate from "20.7 mph at 2.5 miles" alone would rest on a handful of flights.
"""

from __future__ import annotations

from typing import NamedTuple

#: Visibility in miles below which it is "low", and below which it is "hazy"; the table records 10 at most.
LOW_VISIBILITY = 3.0
HAZY_VISIBILITY = 10.0
#: Wind speed in mph from which it is a "breeze", and from which it is "strong".
BREEZE = 12.0
STRONG_WIND = 20.0
#: Wind speed in mph above which the instrument was wrong: one hour of February 2013 reads 1048.
IMPOSSIBLE_WIND = 200.0
#: Precipitation in inches an hour from which rain (or melted snow) is "heavy".
HEAVY_PRECIPITATION = 0.1

#: How one hour is written in the prepared file when its weather is not known.
UNKNOWN = "-"


class Conditions(NamedTuple):
    """The weather of one hour at one airport, in words."""

    visibility: str
    wind: str
    precipitation: str


#: Every kind of weather; its place in this list, as a letter, stands for it in the prepared file.
ALL = [
    Conditions(visibility, wind, precipitation)
    for visibility in ("clear", "hazy", "low")
    for wind in ("calm", "breeze", "strong")
    for precipitation in ("dry", "light", "heavy")
]
_CODE = {conditions: chr(ord("A") + place) for place, conditions in enumerate(ALL)}
_MEANING = {code: conditions for conditions, code in _CODE.items()}


def conditions(visibility: float | None, wind: float | None, precipitation: float | None) -> Conditions | None:
    """Name the weather of miles, mph and inches an hour; None when one of them was not measured."""
    if visibility is None or wind is None or precipitation is None or wind > IMPOSSIBLE_WIND:
        return None
    return Conditions(
        "low" if visibility < LOW_VISIBILITY else "hazy" if visibility < HAZY_VISIBILITY else "clear",
        "strong" if wind >= STRONG_WIND else "breeze" if wind >= BREEZE else "calm",
        "heavy" if precipitation >= HEAVY_PRECIPITATION else "light" if precipitation > 0 else "dry",
    )


def encode(weather: Conditions | None) -> str:
    """Return the one character that stands for an hour's weather in the prepared file."""
    return UNKNOWN if weather is None else _CODE[weather]


def decode(code: str) -> Conditions | None:
    """Return the weather that a character of the prepared file stands for."""
    return _MEANING.get(code)
