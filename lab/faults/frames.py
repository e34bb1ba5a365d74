"""AMQP 0-9-1 frames as they go by, as far as the proxy looks into them: methods, and a few of their arguments. Pure."""

from __future__ import annotations

import struct
from dataclasses import dataclass

#: Class and method numbers of the AMQP 0-9-1 specification.
CONSUME, PUBLISH, CONFIRMED = (60, 20), (60, 40), (60, 80)

_METHOD_FRAME = 1
#: What a client begins with; it is not a frame.
_GREETING = b"AMQP\0\0\x09\x01"
_HEAD = struct.Struct(">BHI")


@dataclass(frozen=True, slots=True)
class Method:
    """One method frame."""

    channel: int
    number: tuple[int, int]
    arguments: bytes

    @property
    def name(self) -> str:
        """Exchange of a publish, queue of a consume: the first short string after two reserved bytes."""
        return _short(self.arguments, 2)


class Scanner:
    """Finds the methods in one direction of a connection, however its bytes are cut into chunks."""

    def __init__(self) -> None:
        self._unread = b""

    def feed(self, data: bytes) -> list[Method]:
        """Take in the next bytes and return the methods that they complete."""
        unread = self._unread + data
        found: list[Method] = []
        if unread[:1] == _GREETING[:1]:  # no frame begins so
            if len(unread) < len(_GREETING):
                self._unread = unread
                return found
            unread = unread[len(_GREETING) :]
        while len(unread) >= _HEAD.size:
            kind, channel, size = _HEAD.unpack_from(unread)
            end = _HEAD.size + size + 1
            if len(unread) < end:
                break
            if kind == _METHOD_FRAME:
                payload = unread[_HEAD.size : end - 1]
                found.append(Method(channel, struct.unpack_from(">HH", payload), payload[4:]))
            unread = unread[end:]
        self._unread = unread
        return found


def _short(data: bytes, at: int) -> str:
    return data[at + 1 : at + 1 + data[at]].decode(errors="replace")
