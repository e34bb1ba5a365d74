"""Options of a TCP connection that find out when the other side has gone without a word.

The machine lost its power, for example, or a firewall forgot the connection.
"""

from __future__ import annotations

import socket
from contextlib import suppress

#: As (level, option, value): probes after 15 s of silence, and 30 s for what was sent to be acknowledged.
OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),
)


def keep_alive(connection: socket.socket) -> None:
    """Set the options. Connections that a listening socket accepts have them, too."""
    for level, option, value in OPTIONS:
        with suppress(OSError):
            connection.setsockopt(level, option, value)
