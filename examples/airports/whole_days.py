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
    grouped = table[table["month"] == month].groupby(["dest", "year", "month", "day"])["dep_delay"]
    found: Found = {}
    for row in grouped.agg(["size", "count", "mean"]).reset_index().itertuples(index=False):
        mean = None if pd.isna(row.mean) else round(float(row.mean), 6)
        found[row.dest, date(row.year, row.month, row.day)] = (int(row.size), int(row.size - row.count), mean)
    return found
