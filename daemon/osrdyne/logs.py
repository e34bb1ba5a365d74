"""Log lines for people and for machines: a constant message, then the fields that say which key and why."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

_STANDARD = frozenset(logging.LogRecord("", 0, "", 0, "", None, None).__dict__) | {
    "message",
    "asctime",
    "taskName",
}


def configure(*, as_json: bool, verbose: bool = False) -> None:
    """Send every log line to standard error, as text or as one JSON object a line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines() if as_json else _Text())
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler], force=True)
    # The AMQP library reports each lost connection several times over; our own line says why it ended.
    logging.getLogger("pika").setLevel(logging.DEBUG if verbose else logging.CRITICAL)
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in record.__dict__.items() if name not in _STANDARD}


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(
            f" {name}={json.dumps(value, default=str, ensure_ascii=False)}" for name, value in _fields(record).items()
        )
        line = f"{_time(record)} {record.levelname.lower()} {record.getMessage()}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)
