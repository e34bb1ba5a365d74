"""What a worker wrote, as an error may show it: without the broker's password, printable and short. Pure.

In this order: of a password that is cut first, a part would stay, and one with a character that cannot be printed would
not be found any more.
"""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

#: Longest line of a worker's output that an error repeats, in characters.
LONGEST = 200


def passwords(uri: str) -> set[str]:
    """Return the spellings in which an address's password could show up. Raises ValueError for what is no address."""
    userinfo, at, _ = urlsplit(uri).netloc.rpartition("@")
    _, colon, password = userinfo.partition(":")
    return {password, unquote(password)} if at and colon and password else set()


def shown(line: str, secrets: set[str], *, without_begin: bool = False) -> str:
    """Return a line as an error may show it. Of one that is known but for its begin, so much is left out as could be
    the rest of a secret.
    """
    if without_begin:
        line = line[max(map(len, secrets), default=0) :]
    for secret in sorted(secrets, key=len, reverse=True):
        line = line.replace(secret, "***")
    return "".join(character if character.isprintable() else " " for character in line.strip())[:LONGEST]
