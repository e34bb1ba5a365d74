"""The figures of every airport and day of a month from the whole table, to check jobs by.

Written with pandas on the data set's own table, and on purpose without any code of the worker.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pandas as pd

Found = dict[tuple[str, date], tuple[int, int, float | None]]


def figures(data: Path, month: int) -> Found:
    """Return flights, cancelled flights and mean delay by airport and day, from the data set's folder.

    Days without flights are left out.
    """
    table = pd.read_csv(data / "flights.csv.zip", usecols=["year", "month", "day", "dest", "dep_delay"])
    delays = table[table["month"] == month].groupby(["dest", "year", "month", "day"])["dep_delay"]
    flights, left, means = delays.size(), delays.count(), delays.mean()
    found: Found = {}
    for airport, year, month_of_year, day in flights.index:
        row = (airport, year, month_of_year, day)
        mean = None if pd.isna(means[row]) else round(float(means[row]), 6)
        found[airport, date(year, month_of_year, day)] = (int(flights[row]), int(flights[row] - left[row]), mean)
    return found
