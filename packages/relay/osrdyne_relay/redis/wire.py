"""One open connection to Redis: what is written goes out, and what Redis says is passed on as it comes. It decides
nothing.

It takes the place of redis-py's streams on a connection that redis-py has opened: those read an answer in several steps
of a task, and cost a call more than all that the relay does by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from hiredis import ProtocolError, Reader, ReplyError, pack_command

from osrdyne_relay.redis.port import Command

__all__ = ["RedisWire", "ReplyError", "packed"]


def packed(commands: tuple[Command, ...]) -> bytes:
    """Return commands as Redis reads them, several as one transaction."""
    if len(commands) == 1:
        return _pack(commands[0])
    return b"".join((_MULTI, *map(_pack, commands), _EXEC))


#: Its annotation says one word; it takes any number.
_pack = cast("Callable[[Command], bytes]", pack_command)
_MULTI, _EXEC = _pack(("MULTI",)), _pack(("EXEC",))


class RedisWire(asyncio.Protocol):
    """One connection."""

    def __init__(
        self, transport: asyncio.WriteTransport, said: Callable[[Any], None], ended: Callable[[str], None]
    ) -> None:
        """`said` takes each answer of Redis, also a ReplyError; `ended` hears why the connection ended, once."""
        self._transport = transport
        self._said = said
        self._ended = ended
        self._reader = Reader()
        #: Whether more than a little waits to be sent.
        self.full = False
        #: Called when it is no longer full.
        self.at_room: Callable[[], None] = lambda: None
        transport.set_protocol(self)

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    def abort(self) -> None:
        """Close at once; what was not sent is not sent."""
        self._transport.abort()

    # --- what asyncio calls -----------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            while (answer := self._reader.gets()) is not False:
                self._said(answer)
        except ProtocolError as error:
            self._ended(f"Redis does not speak its protocol: {error}")
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended(f"{type(exc).__name__}: {exc}" if exc else "Redis closed the connection")

    def pause_writing(self) -> None:
        self.full = True

    def resume_writing(self) -> None:
        self.full = False
        self.at_room()
