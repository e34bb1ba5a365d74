"""Log lines of the libraries, which run in programs of others: the message says address, key and reason itself.

A program that calls `logging.basicConfig` shows messages, and no fields. So each of our lines ends with its fields, as
in the logs of our own commands. A handler that wants them apart finds them as attributes of the record, as always.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, MutableMapping
from typing import Any

#: Most characters of a traceback that is logged: its begin and its end, which say where it was and what was raised.
MOST_OF_TRACEBACK = 8_000
_FORMATTER = logging.Formatter()
#: Control characters except tabs, lone surrogates, and zero-width or direction marks. A line break within a field comes
#: as JSON's escape.
_UNSHOWN = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff]")


def logger(name: str) -> logging.LoggerAdapter[logging.Logger]:
    """Return the logger of a module, whose messages say their fields (`extra`), and show bounded tracebacks."""
    logging.getLogger(name).addFilter(bound_traceback)
    return _LogAdapter(logging.getLogger(name))


def bound_traceback(record: logging.LogRecord) -> bool:
    """Have formatters show a part of a traceback that is long; return True: the record is logged.

    What raises writes its text, which may hold a whole request. The exception itself stays in the record.
    """
    if record.exc_info and not record.exc_text:
        text = _FORMATTER.formatException(record.exc_info)
        half = MOST_OF_TRACEBACK // 2
        left_out = len(text) - 2 * half
        record.exc_text = text if left_out <= 0 else f"{text[:half]}\n... ({left_out} characters)\n{text[-half:]}"
    return True


class LogLine:
    """A message and its fields; as text, both."""

    __slots__ = ("fields", "text")

    def __init__(self, text: str, fields: Mapping[str, Any]) -> None:
        self.text = text
        self.fields = fields

    def __str__(self) -> str:
        return self.text + as_text(self.fields)


class _LogAdapter(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        fields = kwargs.get("extra")
        return (LogLine(msg, fields) if fields else msg), kwargs


def as_text(fields: Mapping[str, Any]) -> str:
    """Return fields as they stand behind a message. Keys and reasons come from outside: no field breaks its line."""
    return "".join(
        shown(f" {name}={json.dumps(value, default=str, ensure_ascii=False)}") for name, value in fields.items()
    )


def shown(line: str) -> str:
    """Return a line that escapes characters which would move a terminal's cursor, colour it, or reverse text.

    The escapes are JSON's, so a JSON line stays valid.
    """
    return _UNSHOWN.sub(lambda found: f"\\u{ord(found[0]):04x}", line)
