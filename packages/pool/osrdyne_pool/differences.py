"""The values in which what is there differs from what is declared. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Difference:
    """One value. `path` names it within its object, as in `definition.message-ttl`."""

    path: str
    #: None for what is not there, or is not declared.
    found: Any
    declared: Any

    def __str__(self) -> str:
        return f"{self.path} is {_shown(self.found)}, declared is {_shown(self.declared)}"


def between(there: Mapping[str, Any], declared: Mapping[str, Any], within: str = "") -> Iterator[Difference]:
    """Yield each value that differs. Tables are compared value for value, by their names; all else as a whole."""
    for name in (*declared, *(name for name in there if name not in declared)):
        found, wanted, path = there.get(name), declared.get(name), f"{within}{name}"
        if isinstance(found, Mapping) or isinstance(wanted, Mapping):
            yield from between(found or {}, wanted or {}, f"{path}.")
        elif found != wanted:
            yield Difference(path, found, wanted)


def _shown(value: object) -> str:
    return "not set" if value is None else repr(value)
