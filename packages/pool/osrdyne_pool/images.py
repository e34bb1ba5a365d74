"""Names of container images, as all engines read them. Pure."""

from __future__ import annotations

import re

_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_PATH = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*", re.ASCII)
_REST = re.compile(r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@[A-Za-z][A-Za-z0-9+._-]*:[0-9a-fA-F]{32,})?", re.ASCII)


def problem(name: str) -> str | None:
    """Say what is wrong in the name of an image, `[HOST[:PORT]/]PATH[:TAG][@DIGEST]`; None for nothing."""
    host, slash, path = name.partition("/")
    # What has a dot, a port or upper case before the first slash is a host, as engines read it.
    if not slash or (not {".", ":"} & set(host) and host in ("", host.lower()) and host != "localhost"):
        path = name
    path, rest = re.match(r"([^:@]*)(.*)", path, re.DOTALL).groups()  # type: ignore[union-attr] # matches all
    if _PATH.fullmatch(path) and _REST.fullmatch(rest):
        return None
    if _PATH.fullmatch(path.lower()) and not _PATH.fullmatch(path):
        return f"{name!r} has upper-case letters; only the host and the tag of an image may have them"
    return f"{name!r} is not the name of an image; give [HOST/]PATH:TAG, such as registry.example/core-worker:1.4"
