"""Makes the sockets of a session, and sees that none of them is open beyond its end.

aiohttp forgets a connection over TLS as soon as it begins to close it, as after a request that was cancelled. Until the
node answers that, the connection stays open, also when the session and the loop have ended.
"""

from __future__ import annotations

import asyncio
import socket
import weakref
from contextlib import suppress
from typing import Any

from osrdyne_relay.keepalive import keep_alive


class Sockets:
    """The sockets that one session made."""

    def __init__(self) -> None:
        self._made: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def made(self, info: Any) -> socket.socket:
        """Make a socket for an address, as aiohttp asks for it."""
        family, kind, protocol, _, _ = info
        made = socket.socket(family, kind, protocol)
        try:
            made.setblocking(False)
            keep_alive(made)
        except BaseException:
            made.close()
            raise
        self._made.add(made)
        return made

    def shut(self) -> None:
        """End all connections, whatever the nodes do: their transports find the end, and close the sockets."""
        for opened in self._open():
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)

    async def closed(self) -> None:
        """Let the transports close what was shut, within a few turns of the loop: its user may end it now."""
        for _ in range(10):
            if not self._open():
                break
            await asyncio.sleep(0)

    def _open(self) -> list[socket.socket]:
        return [made for made in self._made if made.fileno() >= 0]
