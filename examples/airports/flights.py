"""What one worker remembers: its destination's flights of 2013, each with the weather at its departure.

Reads the small prepared files that `prepare` writes, so that a worker needs neither pandas nor the whole
table: a start costs milliseconds and a few megabytes where 105 workers may start at once. Writes nothing
itself. Times are minutes of the year on the clock in New York, as the data set records them.
"""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from examples.airports import weather

#: The moment that minute 0 stands for.
YEAR_START = datetime.fromisoformat("2013-01-01")
#: First minute of the year, and the first one after it.
YEAR = (0, 365 * 24 * 60)
#: File of the weather at the three airports of origin, beside one file a destination.
WEATHER_FILE = "weather.json"


class Flight(NamedTuple):
    """One scheduled flight from New York."""

    #: Scheduled departure, in minutes of the year.
    scheduled: int
    origin: str
    carrier: str
    number: int
    #: Minutes that it left late (negative: early); None for a flight that never left.
    delay: int | None
    #: Weather at the origin in the hour of the scheduled departure; None when it was not recorded.
    weather: weather.Conditions | None

    @property
    def departed(self) -> int | None:
        """Actual departure in minutes of the year; None for a flight that never left."""
        return None if self.delay is None else self.scheduled + self.delay


class Airport(NamedTuple):
    """A destination as its worker knows it. One without flights has a worker like any other."""

    code: str
    name: str | None
    #: In the order of scheduled departure, then origin, carrier and number.
    flights: list[Flight]
    #: Weather codes by airport of origin, one character for each hour of the year.
    skies: dict[str, str]

    def weather_at(self, origin: str, minute: int) -> weather.Conditions | None:
        """Return the weather at an origin in the hour of a minute of the year; None when it is not known."""
        return _weather_at(self.skies, origin, minute)


class DamagedData(Exception):
    """A prepared file cannot be read."""


def minute(moment: datetime) -> int:
    """Return the minute of the year of a time in New York; negative or large outside 2013."""
    return (moment - YEAR_START) // timedelta(minutes=1)


def month(number: int) -> tuple[int, int]:
    """Return the first minute of a month (1 to 12), and the first one after it."""
    following = "2014-01-01" if number == 12 else f"2013-{number + 1:02}-01"
    return minute(datetime.fromisoformat(f"2013-{number:02}-01")), minute(datetime.fromisoformat(following))


def text(minute_of_year: int) -> str:
    """Return a minute of the year as `2013-12-21T17:30`."""
    return (YEAR_START + timedelta(minutes=minute_of_year)).isoformat(timespec="minutes")


def load(key: str, folder: str) -> Airport:
    """Return the airport that a key names, from the prepared files in `folder`.

    A key that is not a destination of the data set gives an airport without flights. A key becomes part of a
    path only when it has the form of a code. Raises `DamagedData`, and `FileNotFoundError` where nothing is
    prepared.
    """
    skies = _read(os.path.join(folder, WEATHER_FILE))
    path = os.path.join(folder, f"{key}.json")
    if not is_code(key) or not os.path.exists(path):
        return Airport(key, None, [], skies)
    destination = _read(path)
    return airport(key, destination, skies)


def is_code(key: str) -> bool:
    """Say whether a key has the form of a destination's code: three capital letters."""
    return len(key) == 3 and key.isascii() and key.isalpha() and key.isupper()


def airport(key: str, destination: dict[str, Any], skies: dict[str, str]) -> Airport:
    """Return the airport from what `prepare` found: its name, and its flights as one list a field."""
    once: dict[str, str] = {}
    keep = once.setdefault  # one string object a carrier and origin, not one a flight
    fields = ("scheduled", "origin", "carrier", "number", "delay")
    rows = zip(*(destination[field] for field in fields), strict=True)
    flights = [
        Flight(at, keep(origin, origin), keep(carrier, carrier), number, delay, _weather_at(skies, origin, at))
        for at, origin, carrier, number, delay in rows
    ]
    return Airport(key, destination["name"], flights, skies)


def _weather_at(skies: dict[str, str], origin: str, minute_of_year: int) -> weather.Conditions | None:
    hours = skies.get(origin, "")
    hour = minute_of_year // 60
    return weather.decode(hours[hour]) if 0 <= hour < len(hours) else None


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            content: dict[str, Any] = json.load(file)
            return content
    except ValueError as error:
        raise DamagedData(f"{path}: {error}; remove its folder, the next worker writes it again") from error
