"""Checks of the values that a stack's configuration is made of. Pure.

A check takes what somebody wrote and returns what the program uses, or raises `Wrong` with what is allowed. `record`
makes one check of many: a table with known names becomes a dataclass, and what is wrong keeps its path.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any
from urllib.parse import urlsplit

Check = Callable[[object], Any]

#: Kubernetes, "Object Names and IDs": the name of a namespace.
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", re.ASCII)
#: Kubernetes, "Quantity": an amount of memory, CPU or storage.
_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|[KMGTPE]i?)?", re.ASCII)


class Wrong(ValueError):
    """A value is not what it should be. `path` says where within what was checked, such as `.daemon.image`."""

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(problem)
        self.path = path


def table(value: object, known: tuple[str, ...]) -> dict[str, Any]:
    """Return a table that has no other names than these."""
    if not isinstance(value, dict):
        raise Wrong(f"{value!r} is no table of {', '.join(known)}")
    for name in value:
        if name not in known:
            raise Wrong(f"is not a setting; known are {', '.join(known)}", f".{name}")
    return value


def record(kind: type[Any], checks: Mapping[str, Check]) -> Check:
    """Return the check of a table that becomes a `kind`; fields without a default have to be given."""
    required = [
        one.name
        for one in fields(kind)
        if one.name in checks and one.default is MISSING and one.default_factory is MISSING
    ]

    def check(value: object) -> Any:
        given = table(value, tuple(checks))
        for name in required:
            if name not in given:
                raise Wrong("is missing", f".{name}")
        return kind(**{name: at(f".{name}", checks[name], one) for name, one in given.items()})

    return check


def at(path: str, check: Check, value: object) -> Any:
    """Check a value that stands at a path."""
    try:
        return check(value)
    except ValueError as error:
        raise Wrong(str(error), path + getattr(error, "path", "")) from None


def each(check: Check) -> Check:
    """Return the check of a list, all values of which are alike."""

    def check_list(value: object) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise Wrong(f"{value!r} is no list")
        return tuple(at(f"[{number}]", check, one) for number, one in enumerate(value))

    return check_list


def named(check: Check) -> Check:
    """Return the check of a table with any names, all values of which are alike."""

    def check_table(value: object) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Wrong(f"{value!r} is no table of names and values")
        return {str(name): at(f".{name}", check, one) for name, one in value.items()}

    return check_table


def filled(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise Wrong(f"{value!r} is no text of 1 byte or more")
    return value


def text(value: object) -> str:
    if not isinstance(value, str):
        raise Wrong(f"{value!r} is no text; put numbers and the like in quotes")
    return value


def flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise Wrong(f"{value!r} is neither true nor false")
    return value


def choice(*allowed: str) -> Check:
    """Return the check of one of a few words."""

    def check(value: object) -> str:
        if not isinstance(value, str) or value not in allowed:
            raise Wrong(f"{value!r} is none of {', '.join(allowed)}")
        return value

    return check


def integer(least: int, most: int | None = None) -> Check:
    """Return the check of a whole number within bounds."""

    def check(value: object) -> int:
        upper = f" to {most}" if most is not None else " or more"
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or value < least
            or (most is not None and value > most)
        ):
            raise Wrong(f"{value!r} is no integer of {least}{upper}")
        return value

    return check


def quantity(value: object) -> str:
    """Return an amount of memory, CPU or storage as Kubernetes writes it."""
    if isinstance(value, bool) or not isinstance(value, str | int | float) or not _QUANTITY.fullmatch(str(value)):
        raise Wrong(f"{value!r} is no amount; give 2, '0.5', 100m, 512Mi or 2Gi")
    return str(value)


def namespace(value: object) -> str:
    if not isinstance(value, str) or not _LABEL.fullmatch(value) or len(value) > 63:
        raise Wrong(
            f"{value!r} is no name of a namespace; use lower-case letters, digits and inner hyphens, at most 63"
        )
    return value


def image(value: object) -> str:
    """Return the name of a container image, with a tag or digest that stays what it is."""
    name = filled(value)
    tag = name.rpartition("/")[2].partition(":")[2]
    if tag in ("", "latest") or any(one.isspace() for one in name):
        raise Wrong(f"{name!r} names no version; give an image with a tag other than latest, or with a digest")
    return name


def network(value: object) -> str:
    """Return a range of addresses (CIDR)."""
    try:
        return str(ipaddress.ip_network(filled(value)))
    except ValueError:
        raise Wrong(f"{value!r} is no range of addresses; give one such as 10.1.0.0/16, without host bits") from None


def address(*schemes: str) -> Check:
    """Return the check of an address without user and path."""

    def check(value: object) -> str:
        expected = f"give {' or '.join(f'{one}://HOST:PORT' for one in schemes)}, without user and path"
        try:
            split = urlsplit(value if isinstance(value, str) else "")
            sound = split.scheme in schemes and split.hostname and split.path in ("", "/") and split.port != 0
        except ValueError:
            sound = False
        if not sound or split.username is not None or split.password is not None:
            # What was found may hold a password.
            raise Wrong(f"is no such address; {expected}")
        return str(value).replace("/?", "?").rstrip("/")

    return check
