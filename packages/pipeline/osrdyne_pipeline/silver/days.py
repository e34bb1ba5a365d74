"""Days and hours of times in milliseconds since the Unix epoch, in UTC whatever the session's time zone is."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 -- the usual name for it

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def day_of(column: str) -> Column:
    """Return the day of a column of times."""
    return F.date_from_unix_date(F.expr(f"int({column} div {DAY_MS})"))


def hour_of(column: str) -> Column:
    """Return the beginning of the hour of a column of times, in milliseconds since the epoch."""
    return F.expr(f"{column} div {HOUR_MS} * {HOUR_MS}")
