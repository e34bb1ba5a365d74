"""A broker's address, which may change while a program runs: it is read again at each connection.

A new password at the broker ends no connection, but new connections need the new password. A program that passes a
function instead of a text needs no restart then.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

from osrdyne_amqp.errors import InvalidUri
from osrdyne_runtime import addresses
from osrdyne_runtime.settings import secrets

#: The address, or a function that returns the present one; called on the event loop, so it must not take long.
Address = str | Callable[[], str]


def from_file(path: str | Path) -> Callable[[], str]:
    """Return a function that reads an address from a file: its first line, as `secrets.in_file` does."""
    return partial(secrets.in_file, path, "the broker's address")


def present(address: Address) -> str:
    """Return the present address. Raises InvalidUri, whose text does not contain the address."""
    if isinstance(found := addresses.given(address, "the broker's address", InvalidUri), str):
        return found
    raise InvalidUri(f"the broker's address is {type(found).__name__}, not text")


def virtual_host(uri: str) -> str:
    """Return the virtual host that an AMQP address names. Raises InvalidUri."""
    if wrong := addresses.problem(uri, "amqp", "amqps"):
        raise InvalidUri(f"the broker URI {wrong}; it looks like amqp://user:password@host:5672/vhost")
    return unquote(urlsplit(uri).path.removeprefix("/")) or "/"
