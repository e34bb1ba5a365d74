"""Reads the fields of a question strictly: what is missing or wrong is named, with what would be right."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from examples.airports import flights

#: The three airports of New York that the data set's flights leave from.
ORIGINS = ("EWR", "JFK", "LGA")


class BadQuestion(ValueError):
    """The question cannot be answered as it is; the text says what would be right."""


def minute_of_2013(question: Mapping[str, Any], name: str = "at") -> int:
    """Return a time in New York in minutes since 2013 began; negative before that. Raises BadQuestion."""
    value = question.get(name)
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        time = None
    if time is None or time.tzinfo is not None:
        raise BadQuestion(f"{name} must be a time in New York such as 2013-12-21T17:30, not {shown(value)}")
    return flights.minute(time)


def origin(question: Mapping[str, Any]) -> str | None:
    """Return the airport of origin; None where the question names none. Raises BadQuestion."""
    value = question.get("origin")
    if value is not None and value not in ORIGINS:
        raise BadQuestion(f"origin must be one of {', '.join(ORIGINS)}, not {shown(value)}")
    return value


def whole_number(question: Mapping[str, Any], name: str, *, least: int, most: int) -> int | None:
    """Return a whole number from `least` to `most`; None where the question leaves it out. Raises BadQuestion."""
    value = question.get(name)
    if value is not None and not _is_whole(value, least, most):
        raise BadQuestion(f"{name} must be a whole number from {least} to {most}, not {shown(value)}")
    return value


def percentiles(question: Mapping[str, Any], default: tuple[int, ...]) -> tuple[int, ...]:
    """Return the percentiles that are asked for, or the default. Raises BadQuestion."""
    value = question.get("percentiles")
    if value is None:
        return default
    if not isinstance(value, list) or not all(_is_whole(percent, 0, 100) for percent in value):
        raise BadQuestion(f"percentiles must be a list of whole numbers from 0 to 100, not {shown(value)}")
    return tuple(value)


def shown(value: object) -> str:
    """Return a value as an error text quotes it: on one line, and never at great length."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _is_whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
