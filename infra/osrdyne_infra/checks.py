"""What the values of a stack's configuration may be, and how what pydantic finds wrong is worded. Pure.

A check takes what a person wrote and returns what the program uses, or raises `InvalidValue` with what is allowed.
The fields of a `StrictModel` have such checks, and `read` makes it of a value: what is wrong keeps its path.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

from pydantic import BeforeValidator

from osrdyne_pool import images
from osrdyne_protocol.errors import SettingsError
from osrdyne_runtime import addresses
from osrdyne_runtime.settings.model import StrictModel

Check = Callable[[object], Any]

#: Kubernetes, "Object Names and IDs": the name of a namespace.
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", re.ASCII)
#: Kubernetes, "Quantity": an amount of memory, CPU or storage. Ours have no sign.
_QUANTITY = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?", re.ASCII)


class InvalidValue(ValueError):
    """A value is not what it should be. `path` says where within what was checked, such as `.daemon.image`."""

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(problem)
        self.path = path


def table(value: object, known: tuple[str, ...]) -> dict[str, Any]:
    """Return a table that has no other names than these."""
    if not isinstance(value, dict):
        raise InvalidValue(f"{value!r} is not a table of {', '.join(known)}")
    for name in value:
        if name not in known:
            raise InvalidValue(f"is not a setting; known are {', '.join(known)}", f".{name}")
    return value


Kind = TypeVar("Kind", bound=StrictModel)


def read(kind: type[Kind], value: object) -> Kind:
    """Return a value as a table of a kind. Raises InvalidValue for the first mistake."""
    try:
        return kind.from_mapping(value)
    except SettingsError as error:
        raise InvalidValue(error.problem, error.path and f".{error.path}") from None


def each(check: Check, values: object) -> tuple[Any, ...]:
    """Check each value of a list; return the results as a tuple."""
    if not isinstance(values, list):
        raise InvalidValue(f"{values!r} is not a list")
    return tuple(at(f"[{number}]", check, value) for number, value in enumerate(values))


def at(path: str, check: Check, value: object) -> Any:
    """Check a value that stands at a path."""
    try:
        return check(value)
    except ValueError as error:
        raise InvalidValue(str(error), path + getattr(error, "path", "")) from None


def filled(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidValue(f"{value!r} is not text of 1 byte or more")
    return value


def text(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidValue(f"{value!r} is not text; put numbers and the like in quotes")
    return value


def flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidValue(f"{value!r} is neither true nor false")
    return value


def choice(*allowed: str) -> Check:
    """Return the check of one of a few words."""

    def check(value: object) -> str:
        if not isinstance(value, str) or value not in allowed:
            raise InvalidValue(f"{value!r} is none of {', '.join(allowed)}")
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
            raise InvalidValue(f"{value!r} is not an integer of {least}{upper}")
        return value

    return check


def quantity(value: object) -> str:
    """Return an amount of memory, CPU or storage as Kubernetes writes it."""
    if isinstance(value, bool) or not isinstance(value, str | int | float) or not _QUANTITY.fullmatch(str(value)):
        raise InvalidValue(f"{value!r} is not an amount; give 2, '0.5', 100m, 512Mi or 2Gi (k is 1000, Ki is 1024)")
    return str(value)


def disk(value: object) -> str:
    """Return the size of a disk. Kubernetes refuses 0; with it, RabbitMQ's operator keeps its data in the pod."""
    if not any(digit in "123456789" for digit in re.split("[eE]", quantity(value))[0]):
        raise InvalidValue(f"{value!r} is not the size of a disk; give one such as 10Gi")
    return str(value)


def namespace(value: object) -> str:
    if not isinstance(value, str) or not _LABEL.fullmatch(value) or len(value) > 63:
        raise InvalidValue(
            f"{value!r} is not a name of a namespace; use at most 63 lower-case letters, digits and inner hyphens"
        )
    return value


def image(value: object) -> str:
    """Return the name of a container image, with a tag or digest that stays what it is."""
    name = filled(value)
    tag = name.rpartition("/")[2].partition(":")[2]
    if tag in ("", "latest"):
        raise InvalidValue(f"{name!r} names no version; give an image with a tag other than latest, or with a digest")
    if wrong := images.problem(name):
        raise InvalidValue(wrong)
    return name


def network(value: object) -> str:
    """Return a range of addresses (CIDR)."""
    try:
        return str(ipaddress.ip_network(filled(value)))
    except ValueError:
        raise InvalidValue(
            f"{value!r} is not a range of addresses; give one such as 10.1.0.0/16, without host bits"
        ) from None


def address(*schemes: str) -> Check:
    """Return the check of an address without user and path, and, for http and https, without a query."""
    without = "user, path and query" if "http" in schemes else "user and path"
    expected = f"give {' or '.join(f'{scheme}://HOST:PORT' for scheme in schemes)}, without {without}"

    def check(value: object) -> str:
        wrong = addresses.problem(value, *schemes)
        split = urlsplit(str(value) if wrong is None else "")
        if wrong is None and split.path not in ("", "/"):
            wrong = "has a path"
        if wrong is None and (split.username is not None or split.password is not None):
            wrong = "has a user"
        if wrong is None and split.query and "http" in schemes:
            wrong = "has a query (the CA of a management API is named by osrdyne:broker.cacertfile)"
        if wrong is not None:
            raise InvalidValue(f"{wrong}; {expected}")
        return split._replace(path="").geturl()

    return check


Filled = Annotated[str, BeforeValidator(filled)]
Text = Annotated[str, BeforeValidator(text)]
Flag = Annotated[bool, BeforeValidator(flag)]
Count = Annotated[int, BeforeValidator(integer(1))]
Quantity = Annotated[str, BeforeValidator(quantity)]
DiskSize = Annotated[str, BeforeValidator(disk)]
Namespace = Annotated[str, BeforeValidator(namespace)]
Image = Annotated[str, BeforeValidator(image)]
Network = Annotated[str, BeforeValidator(network)]
HttpAddress = Annotated[str, BeforeValidator(address("http", "https"))]
AmqpAddress = Annotated[str, BeforeValidator(address("amqp", "amqps"))]
