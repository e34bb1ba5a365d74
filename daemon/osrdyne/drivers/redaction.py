"""Makes a worker's output fit for an error: without the broker's password, printable and short. Pure.

The order matters: cutting first could leave a part of a password, and replacing unprintable characters first could hide
a password from the search.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

#: Longest line of a worker's output that an error repeats, in characters.
LONGEST = 200
#: Most lines of the end of a worker.
MOST_LINES = 10


def passwords(uri: str) -> set[str]:
    """Return the spellings in which an address's password may appear. Raises ValueError for an invalid address."""
    userinfo, at, _ = urlsplit(uri).netloc.rpartition("@")
    _, colon, password = userinfo.partition(":")
    return {password, unquote(password)} if at and colon and password else set()


def shown(line: str, secrets: set[str], *, without_begin: bool = False) -> str:
    """Return a line as an error may show it. Where the line's beginning is unknown (`without_begin`), drop as much as
    could be the rest of a secret.
    """
    if without_begin:
        line = line[max(map(len, secrets), default=0) :]
    for secret in sorted(secrets, key=len, reverse=True):
        line = line.replace(secret, "***")
    return "".join(character if character.isprintable() else " " for character in line.strip())[:LONGEST]


def last_lines(lines: Sequence[str], secrets: set[str], *, without_begin: bool = False) -> tuple[str, ...]:
    """Return the last lines that are not blank, at most `MOST_LINES`, each as `shown` returns it.

    `without_begin` says that the beginning of the first line is unknown.
    """
    numbered = [(number, line) for number, line in enumerate(lines) if line.strip()][-MOST_LINES:]
    return tuple(shown(line, secrets, without_begin=without_begin and number == 0) for number, line in numbered)
