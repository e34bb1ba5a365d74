"""The type of a duration in settings."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator

from osrdyne_protocol.durations import parse_seconds

#: A duration in seconds, from a number or ISO 8601 text.
Seconds = Annotated[float, BeforeValidator(parse_seconds)]
