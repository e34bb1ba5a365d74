"""The output of commands: one line for an error, one JSON document on request, and no control characters."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, ParamSpec

from osrdyne_protocol.durations import parse_seconds
from osrdyne_protocol.errors import OsrdyneError

P = ParamSpec("P")

#: Exit statuses, which mean the same in all commands; 0 is done, or yes. The table of docs/reference/cli.md has them.
#: The answer is no: an error reply, a daemon that is not ready, findings, an unknown job.
NO = 1
#: It could not be asked or done.
CANNOT = 2
#: The command line cannot be read.
USAGE = os.EX_USAGE
#: The reader of standard output has gone: what a shell reports for other commands, too.
NOT_READ = 128 + signal.SIGPIPE


class CannotAsk(OsrdyneError):
    """The command cannot do its work; its text says what, where, and what to do."""


class PartlyDone(CannotAsk):
    """The command has done a part of its work: `done` is what its JSON document says of that, beside the error."""

    def __init__(self, why: Exception, done: Mapping[str, Any]) -> None:
        super().__init__(str(why))
        self.done = done


def failing_clearly(
    statuses: Mapping[type[Exception], int], words: Callable[[Exception], str] = str
) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Turn known errors of a command into one line on standard error and an exit status.

    `statuses` names the errors with their exit status; the first class that fits counts. `words` returns the text of an
    error. Where the command has an argument `json` that is true, that text is also in the one document on standard
    output, as `error`.
    """

    def around(command: Callable[P, None]) -> Callable[P, None]:
        @functools.wraps(command)
        def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
            try:
                command(*args, **kwargs)
            except tuple(statuses) as error:
                if kwargs.get("json"):
                    print_json({**(error.done if isinstance(error, PartlyDone) else {}), "error": words(error)})
                complain(words(error))
                sys.exit(next(status for kind, status in statuses.items() if isinstance(error, kind)))

        return wrapped

    return around


#: Turns known errors of a command into one line and exit status 2.
one_line_errors = failing_clearly({OsrdyneError: CANNOT})


def complain(text: str) -> None:
    """Print one line for a person on standard error, whatever the text holds."""
    print(f"osrdyne: {printable(text)}", file=sys.stderr, flush=True)  # noqa: T201 - a command's own words


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Print one JSON document; `indent=None` keeps it on one line."""
    text = json.dumps(_named(value), indent=indent, ensure_ascii=not shows_all(sys.stdout), default=_plain)
    print(text, flush=True)  # noqa: T201 - what the command was asked for


def seconds_of(text: str, option: str) -> float:
    """Return a duration that an option has, in seconds. Raises CannotAsk, which names the option."""
    value: float | str = text
    with contextlib.suppress(ValueError):
        value = float(text)
    try:
        return parse_seconds(value)
    except ValueError as error:
        raise CannotAsk(f"{option}: {error}") from None


def shows_all(stream: Any) -> bool:
    """Return whether a stream shows every character as it is, so that JSON needs no escapes for it."""
    return (getattr(stream, "encoding", None) or "").lower().replace("-", "") == "utf8"


def printable(value: object) -> str:
    """Return text without control characters: it may quote what others wrote."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in str(value))


def shown(key: str) -> str:
    """Return a key for a person: unchanged where that is clear, else quoted and escaped."""
    clear = key.isprintable() and key == key.strip() and not set("'\"\\") & set(key)
    return key if key and clear else repr(key)


def _named(value: object) -> object:
    """Return a value in which all names are text: a header's name is bytes where it is not UTF-8."""
    if isinstance(value, dict):
        return {name if isinstance(name, str) else _plain(name): _named(item) for name, item in value.items()}
    return [_named(item) for item in value] if isinstance(value, list | tuple) else value


def _plain(value: object) -> object:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", errors="backslashreplace")
    return value.isoformat() if isinstance(value, datetime) else str(value)
