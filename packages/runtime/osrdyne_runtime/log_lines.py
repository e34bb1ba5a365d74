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

#: Control characters except tabs, lone surrogates, and zero-width or direction marks. A line break within a field comes
#: as JSON's escape.
_UNSHOWN = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff]")


def logger(name: str) -> logging.LoggerAdapter[logging.Logger]:
    """Return the logger of a module, whose messages say their fields (`extra`)."""
    return _Telling(logging.getLogger(name))


class LogLine:
    """A message and its fields; as text, both."""

    __slots__ = ("fields", "text")

    def __init__(self, text: str, fields: Mapping[str, Any]) -> None:
        self.text = text
        self.fields = fields

    def __str__(self) -> str:
        return self.text + as_text(self.fields)


class _Telling(logging.LoggerAdapter[logging.Logger]):
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
