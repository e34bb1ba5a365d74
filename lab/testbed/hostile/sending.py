"""Sends what was generated to a real broker or server. What that refuses or closes costs only the sender."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from urllib.parse import unquote, urlsplit

from testbed.amqp_1_0 import LinkRefused, Sender
from testbed.hostile import frames, http

#: Seconds that a server may take to hang up.
_PATIENCE_SECONDS = 60.0
#: Seconds that the broker has to settle a message. Some that are broken it never settles.
_SETTLES_SECONDS = 5.0


def send_messages(uri: str, addressed: Iterable[tuple[str, bytes]]) -> int:
    """Send messages of AMQP 1.0 to their addresses, and return how many the broker accepted.

    `uri` is an address of AMQP 0-9-1, as for `Sender`.
    """
    accepted = 0
    sender, current = None, ""
    for address, data in addressed:
        try:
            if sender is None or address != current:
                if sender is not None:
                    sender.close()
                sender, current = Sender(uri, address, patience=_SETTLES_SECONDS), address
            sender.send(data)
            accepted += 1
        except (LinkRefused, OSError):
            if sender is not None:
                sender.close()
            sender = None
    if sender is not None:
        sender.close()
    return accepted


def send_frames(uri: str, attacks: Iterable[bytes]) -> None:
    """Send bytes of AMQP 0-9-1, each over a connection of its own that has logged in and opened a channel.

    The broker has taken in all of it when this returns. It takes three seconds to hang up on some, so several are sent
    side by side.
    """
    parts = urlsplit(uri)
    closing = frames.method((10, 50), struct.pack(">H", 200) + frames.short(b"") + bytes(4), channel=0)

    def send(attack: bytes) -> None:
        ask(parts.hostname or "", parts.port or 5672, opening(uri) + attack + closing)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(send, attacks))


def opening(uri: str) -> bytes:
    """Return what a client writes up to its first channel, without waiting for any answer."""
    parts = urlsplit(uri)
    user, password = (unquote(part or "").encode() for part in (parts.username, parts.password))
    secret = frames.long(b"\0" + user + b"\0" + password)
    start = frames.table([]) + frames.short(b"PLAIN") + secret + frames.short(b"en_US")
    return (
        b"AMQP\0\0\x09\x01"
        + frames.method((10, 11), start, channel=0)
        + frames.method((10, 31), struct.pack(">HIH", 2047, frames.MOST + 8, 60), channel=0)
        + frames.method((10, 40), frames.short(unquote(parts.path[1:]).encode()) + b"\0\0", channel=0)
        + frames.method((20, 10), b"\0")
    )


def ask(host: str, port: int, data: bytes) -> bytes:
    """Send bytes, and return what is answered until the server hangs up.

    Our side is closed after the bytes, unless they are a request that is whole and asks for it (`http.WAITS`).
    """
    answer = b""
    # A server that has had enough resets the connection.
    with socket.create_connection((host, port), _PATIENCE_SECONDS) as connection, suppress(ConnectionError):
        connection.sendall(data)
        if b"\r\n%b: %b\r\n" % tuple(word.encode() for word in http.WAITS) not in data:
            with suppress(OSError):  # it is not connected any more
                connection.shutdown(socket.SHUT_WR)
        while part := connection.recv(65_536):
            answer += part
    return answer
