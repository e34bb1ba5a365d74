"""Log lines for people and for programs: a constant message, then fields with the key and the reason."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime

from osrdyne_runtime.console.output import shows_all
from osrdyne_runtime.log_lines import LogLine, as_text, bound_traceback, shown

_STANDARD = frozenset(logging.LogRecord("", 0, "", 0, "", None, None).__dict__) | {
    "message",
    "asctime",
    "taskName",
}


def configure(*, as_json: bool, verbose: bool = False) -> None:
    """Send every log line to standard error, as text or as one JSON object a line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines() if as_json else _Text())
    handler.addFilter(Repeats())
    handler.addFilter(bound_traceback)
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler], force=True)
    # The AMQP library reports each lost connection several times; our own line says why it ended.
    logging.getLogger("pika").setLevel(logging.DEBUG if verbose else logging.CRITICAL)
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in record.__dict__.items() if name not in _STANDARD}


def _text(record: logging.LogRecord) -> str:
    """The message without fields and arguments."""
    return record.msg.text if isinstance(record.msg, LogLine) else str(record.msg)


def _message(record: logging.LogRecord) -> str:
    """The message without fields."""
    return record.msg.text if isinstance(record.msg, LogLine) else record.getMessage()


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


class Repeats(logging.Filter):
    """Lets `limit` warnings of one kind through in `window` seconds, and counts the rest.

    A kind is a message without its fields, so a thousand keys with the same failure are one kind. After the window, the
    next logged line of any kind is preceded by a line with the number of lines left out. Records other than warnings
    always pass.
    """

    def __init__(self, limit: int = 20, window: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._limit = limit
        self._window = window
        self._clock = clock
        #: Kind -> when its window began, and how many came since.
        self._kinds: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is shown; first log how many lines of past windows were left out."""
        now = self._clock()
        self._close(now)
        if record.levelno < logging.WARNING:
            return True
        kind = (record.name, _text(record))
        began, seen = self._kinds.get(kind, (now, 0))
        self._kinds[kind] = (began, seen + 1)
        return seen < self._limit

    def _close(self, now: float) -> None:
        over = {kind: seen for kind, (began, seen) in self._kinds.items() if now - began >= self._window}
        for kind in over:
            del self._kinds[kind]
        for (name, message), seen in over.items():
            if seen > self._limit:
                fields = {"line": message, "left_out": seen - self._limit, "seconds": self._window}
                logging.getLogger(name).info("more lines like this were left out", extra=fields)


def _exception(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return record.exc_text or formatter.formatException(record.exc_info)  # type: ignore[arg-type]


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time(record)} {record.levelname.lower()} {_message(record)}{as_text(_fields(record))}"
        return shown(f"{line}\n{_exception(self, record)}" if record.exc_info else line)


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = _exception(self, record)
        return shown(json.dumps(line, default=str, ensure_ascii=not shows_all(sys.stderr)))
