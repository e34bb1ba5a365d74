"""The receivers of a message: the servers of a topic, or one of them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from osrdyne_bus.errors import InvalidTarget

#: Most bytes of each name, in UTF-8.
MOST_NAME = 128


class Priority(StrEnum):
    """How urgent a notification is. Each has subscriptions of its own."""

    AUDIT = "audit"
    DEBUG = "debug"
    INFO = "info"
    WARN = "warn"
    ERROR = "error"
    CRITICAL = "critical"
    SAMPLE = "sample"


@dataclass(frozen=True, slots=True)
class Target:
    """Servers of one topic within one exchange; with `server`, the one of them that has this name.

    An exchange keeps the topics of one application apart from those of others. It is a name, and no exchange of a
    broker. Each name is 1 to MOST_NAME bytes of UTF-8 without NUL; raises InvalidTarget otherwise.
    """

    topic: str
    exchange: str = "osrdyne"
    server: str | None = None

    def __post_init__(self) -> None:
        _check("topic", self.topic)
        _check("exchange", self.exchange)
        if self.server is not None:
            _check("server", self.server)


def _check(what: str, name: str) -> None:
    if not isinstance(name, str):
        raise InvalidTarget(f"{what} is text, not {type(name).__name__}")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidTarget(f"{what} {name!r} is not UTF-8 text: give it another name") from None
    if not 0 < size <= MOST_NAME or "\0" in name:
        raise InvalidTarget(f"{what} {name[:80]!r}: give it 1 to {MOST_NAME} bytes without NUL")
