"""Percentiles that are the same at each run: values that occurred, not estimates."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 -- the usual name for it


def percentile(column: str, share: float) -> Column:
    """Return the smallest value that at least `share` of a group's values do not exceed; null without values."""
    return F.expr(f"percentile_disc({share}) WITHIN GROUP (ORDER BY {column})").cast("long")
