"""A sender of AMQP 1.0 by hand, for messages that no library makes, and without anything that is compiled.

RabbitMQ 4 takes AMQP 1.0 on its usual port. It converts such a message when a consumer of AMQP 0-9-1 receives it, so
a program with a client's password can send what the broker cannot convert. (AMQP 1.0: part 1, section 1.6 for types,
part 2, section 2.7 for performatives, part 3, section 3.2 for sections.)
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from typing import Self
from urllib.parse import quote, unquote, urlsplit

NULL, TRUE, FALSE = b"\x40", b"\x41", b"\x42"
BINARY, STRING, SYMBOL = 0xA0, 0xA1, 0xA3
LIST, MAP = 0xD0, 0xD1
HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES = range(0x70, 0x75)
DATA, SEQUENCE, VALUE, FOOTER = range(0x75, 0x79)

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
_SASL_INIT, _SASL_OUTCOME = 0x41, 0x44
_ACCEPTED, _TARGET, _SOURCE = 0x24, 0x29, 0x28
#: Frames of this size fit into what every broker takes.
_FRAME = 60_000


def sized(code: int, data: bytes) -> bytes:
    """Return a binary, a string or a symbol in its short form, or in its long one."""
    return bytes([code, len(data)]) + data if len(data) < 256 else bytes([code + 0x10]) + long(data)


def text(value: str) -> bytes:
    """Return a string; a lone surrogate is encoded as if it were a character, which is not UTF-8."""
    return sized(STRING, value.encode("utf-8", "surrogatepass"))


def compound(code: int, items: list[bytes]) -> bytes:
    """Return a list or a map."""
    return bytes([code]) + long(struct.pack(">I", len(items)) + b"".join(items))


def section(code: int, value: bytes) -> bytes:
    """Return a described value: a section of a message, or a performative."""
    return bytes([0x00, 0x53, code]) + value


def long(data: bytes) -> bytes:
    """Return data with its length before it."""
    return struct.pack(">I", len(data)) + data


def message(
    body: bytes = b"",
    *,
    application: Mapping[str, bytes] | None = None,
    annotations: Mapping[str, bytes] | None = None,
    correlation_id: str | None = None,
    reply_to: str | None = None,
    user_id: str | None = None,
) -> bytes:
    """Return a durable message. Application properties and message annotations are given as encoded values.

    `reply_to` is the name of a queue. RabbitMQ 4.0 hands it to consumers of AMQP 0-9-1 as it is, and an address, too.
    """
    result = section(HEADER, compound(LIST, [TRUE]))
    if annotations:
        pairs = ((sized(SYMBOL, name.encode()), value) for name, value in annotations.items())
        result += section(MESSAGE_ANNOTATIONS, compound(MAP, [half for pair in pairs for half in pair]))
    user = NULL if user_id is None else sized(BINARY, user_id.encode())
    reply, correlation = (NULL if value is None else text(value) for value in (reply_to, correlation_id))
    fields = [NULL, user, NULL, NULL, reply, correlation]
    result += section(PROPERTIES, compound(LIST, fields))
    if application:
        pairs = ((text(name), value) for name, value in application.items())
        result += section(APPLICATION_PROPERTIES, compound(MAP, [half for pair in pairs for half in pair]))
    return result + section(DATA, sized(BINARY, body))


#: Application properties that the broker sends to a consumer of AMQP 0-9-1 as one frame, beyond what was agreed.
LONG = {"x-long": text("v" * 400_000)}
#: A UUID as application property: the broker crashes as it converts it for a consumer of AMQP 0-9-1, and closes the
#: consumer's connection with 541. So do a character, and a map whose keys are numbers.
UUID = {"x-uuid": b"\x98" + bytes(16)}


class LinkRefused(Exception):
    """The broker ended the link or the connection, or did not accept the message; the text has its frame."""


class Sender:
    """A connection with a link to one address of the broker. The messages are bytes, as `message` returns them."""

    def __init__(self, uri: str, address: str, *, patience: float = 60.0) -> None:
        """`uri` is an address of AMQP 0-9-1; `address` as `/queues/NAME` or `/exchanges/NAME/KEY`, percent-encoded.

        `patience`: seconds to wait for any answer, which raise TimeoutError.
        """
        parts = urlsplit(uri)
        self._socket = socket.create_connection((parts.hostname or "", parts.port or 5672), timeout=patience)
        self._delivery = 0
        try:
            self._log_in(unquote(parts.username or ""), unquote(parts.password or ""))
            self._attach(f"vhost:{unquote(parts.path[1:])}", address)
        except BaseException:
            self.close()
            raise

    @classmethod
    def to_queue(cls, uri: str, queue: str) -> Self:
        return cls(uri, f"/queues/{quote(queue, safe='')}")

    @classmethod
    def to_exchange(cls, uri: str, exchange: str, key: str) -> Self:
        return cls(uri, f"/exchanges/{quote(exchange, safe='')}/{quote(key, safe='')}")

    def send(self, encoded: bytes) -> None:
        """Send a message and wait until the broker has accepted it. Raises Refused."""
        number = struct.pack(">BI", 0x70, self._delivery)
        tag = sized(BINARY, struct.pack(">I", self._delivery))
        self._delivery += 1
        for start in range(0, len(encoded), _FRAME):
            more = TRUE if start + _FRAME < len(encoded) else FALSE
            head = section(TRANSFER, compound(LIST, [b"\x43", number, tag, b"\x43", FALSE, more]))
            self._write(0, head + encoded[start : start + _FRAME])
        answer = self._wait(DISPOSITION)
        if section(_ACCEPTED, b"") not in answer:
            raise LinkRefused(repr(answer))

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _log_in(self, user: str, password: str) -> None:
        self._socket.sendall(b"AMQP\x03\x01\x00\x00")
        self._read(8)
        secret = sized(BINARY, b"\0" + user.encode() + b"\0" + password.encode())
        self._write(1, section(_SASL_INIT, compound(LIST, [sized(SYMBOL, b"PLAIN"), secret])))
        self._wait(_SASL_OUTCOME)
        self._socket.sendall(b"AMQP\x00\x01\x00\x00")
        self._read(8)

    def _attach(self, host: str, address: str) -> None:
        number, window = b"\x43", b"\x70\x7f\xff\xff\xff"
        self._write(0, section(OPEN, compound(LIST, [text("attacker"), text(host)])))
        self._write(0, section(BEGIN, compound(LIST, [NULL, number, window, window])))
        ends = (section(_SOURCE, compound(LIST, [])), section(_TARGET, compound(LIST, [text(address)])))
        as_sender, nothing = FALSE, [b"\x50\x00", b"\x50\x00"]  # both modes of settling are the receiver's to choose
        self._write(
            0,
            section(
                ATTACH,
                compound(LIST, [text("link"), number, as_sender, *nothing, *ends, NULL, NULL, number]),
            ),
        )
        self._wait(FLOW)

    def _write(self, kind: int, performative: bytes) -> None:
        self._socket.sendall(struct.pack(">IBBH", len(performative) + 8, 2, kind, 0) + performative)

    def _wait(self, code: int) -> bytes:
        """Return the next performative of this kind. Raises Refused."""
        while True:
            size, offset, _, _ = struct.unpack(">IBBH", self._read(8))
            frame = self._read(size - 8)[4 * offset - 8 :]
            if frame[:3] == section(code, b""):
                return frame
            if frame[:3] in (section(DETACH, b""), section(END, b""), section(CLOSE, b"")):
                raise LinkRefused(repr(frame))

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise LinkRefused("the broker closed the connection")
            data += part
        return data
