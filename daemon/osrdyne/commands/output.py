"""The output of commands: one line for an error, one JSON document on request, and no control characters."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any, ParamSpec

import typer

from osrdyne.errors import DaemonError
from osrdyne_protocol.errors import OsrdyneError, ProtocolError

P = ParamSpec("P")

#: Exit status when the answer is no: an error reply, a daemon that is not ready, findings.
NO = 1
#: Exit status when the command could not do its work at all.
CANNOT = 2


class CannotAsk(DaemonError):
    """The command cannot do its work; its text says what, where, and what to do."""


def failing_clearly(command: Callable[P, None]) -> Callable[P, None]:
    """Turn known errors of a command into one line on standard error and exit status 2.

    With `--json` the same text is also the one document on standard output, as `error`.
    """

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except (DaemonError, OsrdyneError, ProtocolError) as error:
            if kwargs.get("json"):
                print_json({"error": str(error)})
            complain(str(error))
            raise typer.Exit(CANNOT) from None

    return wrapped


def complain(text: str) -> None:
    """Print one line for a person on standard error, whatever the text holds."""
    line = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
    typer.echo(f"osrdyne: {line}", err=True)


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Print one JSON document; `indent=None` keeps it on one line."""
    utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    typer.echo(json.dumps(_named(value), indent=indent, ensure_ascii=not utf8, default=_plain))


def shown(key: str) -> str:
    """Return a key for a person: unchanged where that is clear, else quoted and escaped."""
    clear = key.isprintable() and key == key.strip() and not set("'\"\\") & set(key)
    return key if key and clear else repr(key)


def _named(value: object) -> object:
    """Return a value in which all names are text: a header's name is bytes where it is not UTF-8."""
    if isinstance(value, dict):
        return {name if isinstance(name, str) else _plain(name): _named(one) for name, one in value.items()}
    return [_named(one) for one in value] if isinstance(value, list | tuple) else value


def _plain(value: object) -> object:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", errors="backslashreplace")
    return value.isoformat() if isinstance(value, datetime) else str(value)
