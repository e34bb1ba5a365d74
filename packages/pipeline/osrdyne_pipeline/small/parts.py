"""Parts of the queries: days and hours in UTC, kinds of events, and moments."""

from __future__ import annotations

from collections.abc import Mapping

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def day_of(column: str) -> str:
    """Return the day of a column of times."""
    return f"(date '1970-01-01' + cast({column} // {DAY_MS} as integer))"


def kind_of(kinds: Mapping[str, int]) -> str:
    """Return the number that stands for each event; null for others."""
    return "case event " + " ".join(f"when '{event}' then {kind}" for event, kind in kinds.items()) + " end"


def moment(*columns: str) -> str:
    """Return a struct that sorts by time and then by what is said, what is not said first."""
    fields = (f"'has_{column}': {column} is not null, '{column}': {column}" for column in columns)
    return "{'at': time_ms, " + ", ".join(fields) + "}"
