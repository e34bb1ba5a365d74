"""The base of all settings tables: a strict model, and the type of a duration."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict

from osrdyne_protocol.durations import parse_seconds

#: A duration in seconds, from a number or ISO 8601 text.
Seconds = Annotated[float, BeforeValidator(parse_seconds)]


class StrictModel(BaseModel):
    """A table of settings: an unknown key is an error, and values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)
