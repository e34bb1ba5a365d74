"""Percentiles that are the same at each run: values that occurred, not estimates."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 -- everybody's name for it


def percentile(column: str, share: float) -> Column:
    """Return the smallest value of which at least `share` of a group's values are no greater; null without values."""
    return F.expr(f"percentile_disc({share}) WITHIN GROUP (ORDER BY {column})").cast("long")
