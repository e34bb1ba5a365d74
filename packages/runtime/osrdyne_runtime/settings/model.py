"""Strict settings: the model that all tables of settings are, durations, and the one line about what is wrong.

Needs pydantic, which is the extra `settings`. No text shows a value that a person gave: it may be a secret.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from osrdyne_protocol.durations import parse_seconds
from osrdyne_protocol.errors import SettingsError

#: A duration in seconds, from a number or ISO 8601 text. `Field` adds bounds.
Seconds = Annotated[float, BeforeValidator(parse_seconds)]

_UNKNOWN = "unknown_setting"
#: Texts in place of pydantic's, by its type of error.
_WORDS = {"missing": "is missing", "tuple_type": "is not a list", "dict_type": "is not a table of names and values"}


class StrictModel(BaseModel):
    """A table of settings: an unknown name is an error, and values never change.

    A field that is excluded is not for a person to set.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _known(cls, value: object) -> object:
        known = [field.alias or name for name, field in cls.model_fields.items() if not field.exclude]
        if cls.model_config.get("extra") != "forbid":
            return value
        if isinstance(value, Mapping):
            for name in value:
                if name not in known:
                    text = "is not a setting; known are {known}"
                    raise PydanticCustomError(_UNKNOWN, text, {"name": str(name), "known": ", ".join(known)})
        elif not isinstance(value, cls):
            raise PydanticCustomError("no_table", "is not a table of {known}", {"known": ", ".join(known)})
        return value

    @classmethod
    def from_mapping(cls, values: object, *, path: str = "") -> Self:
        """Parse a mapping, a table of TOML for example. Raises SettingsError, which names the setting from `path`."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise first_problem(error, path) from None


def first_problem(
    error: ValidationError, path: str = "", words: Callable[[Mapping[str, Any]], str | None] | None = None
) -> SettingsError:
    """Return the first of what pydantic finds wrong, as the one line that people read.

    `path` names what was parsed. `words` may give another text for an error, which it gets as pydantic describes it. A
    validator that raises SettingsError names the setting from any table above it.
    """
    first = error.errors(include_url=False)[0]
    where: list[int | str] = [path] if path else []
    where += first["loc"]
    context = first.get("ctx", {})
    cause = context.get("error")
    if isinstance(cause, SettingsError):
        top = cause.path.partition(".")[0]
        return SettingsError(_joined([*where[: where.index(top) if top in where else None], cause.path]), cause.problem)
    if first["type"] == _UNKNOWN:
        where.append(context["name"])
    text = (words and words(first)) or _WORDS.get(first["type"]) or first["msg"].removeprefix("Value error, ")
    return SettingsError(_joined(where, getattr(cause, "path", "")), text)


def _joined(where: list[int | str], below: str = "") -> str:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in where)
    return f"{path}{below}".removeprefix(".")
