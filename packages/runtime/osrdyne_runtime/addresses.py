"""What is wrong in an address, said in one way for all that is addressed by a URI. Pure, but for `given`.

An address may hold a password, so no text quotes any of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from osrdyne_protocol.errors import OsrdyneError, SettingsError
from osrdyne_protocol.foreign_json import is_unicode

#: Known parameters that an error lists.
_FEW = 8
_ENCODED = "in a user name or password write / : @ ? # % percent-encoded"


def given(address: object, name: str, error: type[OsrdyneError]) -> Any:
    """Return an address, or what a function returns as one. Raises `error`, whose text begins with `name`."""
    try:
        return address() if callable(address) else address
    except SettingsError as wrong:
        raise error(f"{name} {wrong.problem}") from None
    except OSError as wrong:
        # Of an address that was taken for a file, the file's name is the address.
        where = f": {wrong.filename}" if wrong.filename and "@" not in str(wrong.filename) else ""
        raise error(f"{name} cannot be read: {wrong.strerror or type(wrong).__name__}{where}") from None
    except OsrdyneError as wrong:
        raise error(f"{name} cannot be read: {wrong}") from None
    except Exception as wrong:  # noqa: BLE001 - of a function of the user's; its text may hold the address
        raise error(f"{name} cannot be read ({type(wrong).__name__})") from None


def problem(address: object, *schemes: str) -> str | None:
    """Say what is wrong in an address, as the rest of a sentence that begins with its name; None for nothing.

    It has to have one of the schemes, and a host. Which path and query it may have is the caller's to say.
    """
    if not isinstance(address, str):
        return f"is {type(address).__name__}, not text"
    if not address.strip():
        return "is empty"
    if not is_unicode(address):
        return "has bytes that are not UTF-8"
    try:
        parts = urlsplit(address)
        host = parts.hostname
    except ValueError:
        return f"has [ or ] that are not around the numbers of an IPv6 address; {_ENCODED}"
    if parts.scheme not in schemes:
        return f"does not start with {' or '.join(f'{scheme}://' for scheme in schemes)}"
    if any("@" in part for part in (parts.path, parts.query, parts.fragment)):
        return f"has an @ behind its host; write %40 there, and {_ENCODED}"
    if not host or not host.isprintable() or any(char.isspace() for char in host):
        return "has a space, or what cannot be printed, in its host" if host else "names no host"
    if parts.fragment:
        return f"has a #; {_ENCODED}"
    return _problem_of(parts)


def _problem_of(parts: SplitResult) -> str | None:
    """Say what is wrong in an address that has a scheme and a host."""
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        return f"has a port that is not a number from 1 to 65535; {_ENCODED}"
    try:
        for part in (parts.username or "", parts.password or "", parts.path):
            unquote(part, errors="strict")
    except UnicodeDecodeError:
        return "has percent-encoded bytes that are not UTF-8"
    return None


class UnusableQuery(ValueError):
    """Says what is wrong after "the address"; it names known parameters only, and shows no value."""


def parameters(query: str, known: Collection[str]) -> dict[str, str]:
    """Return the parameters of an address, of which none is dropped in silence.

    Raises UnusableQuery for one that is not known, is empty, or is given twice.
    """
    found = parse_qsl(query, keep_blank_values=True)
    for number, (name, _) in enumerate(found, 1):
        if name not in known:  # it is not named: behind a raw & or ? it may be a part of the password
            these = f" ({', '.join(sorted(known)) or 'there are none'})" if len(known) <= _FEW else ""
            raise UnusableQuery(
                f"has a parameter, number {number} behind the ?, that is unknown here{these}; leave it out, and in a "
                "password write & as %26 and ? as %3F"
            )
    for name, count in Counter(name for name, _ in found).items():
        if count > 1:
            raise UnusableQuery(f"has {name} {count} times; give it once")
    for name, value in found:
        if not value:
            raise UnusableQuery(f"has {name} without a value; leave it out")
    return dict(found)
