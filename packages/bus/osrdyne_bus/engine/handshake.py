"""The login before the frames of a connection: bytes in, bytes out (AMQP 1.0, part 5, section 5.3).

proton has one as well. Compiled without Cyrus SASL it knows no SCRAM, and compiled with it no EXTERNAL below which TLS
is Python's.
"""

from __future__ import annotations

from typing import Any, TypeVar

from proton import Array, Data, ulong

from osrdyne_bus.logins import CannotLogIn, Login, Mechanism, mechanism_for

HEADER = b"AMQP\x03\x01\x00\x00"
#: Most bytes of a frame.
MOST_BYTES = 65536
_MECHANISMS, _INIT, _CHALLENGE, _RESPONSE, _OUTCOME = range(0x40, 0x45)
#: What an outcome may say (section 5.3.3.6).
_OUTCOMES = {1: "user, password or certificate are wrong", 2: "it failed", 3: "it failed", 4: "it failed for now"}


Field = TypeVar("Field")


class NotAmqp(ValueError):
    """What came is not a login of AMQP 1.0; the text says what it was."""


class Handshake:
    """One login. Send what `begin` returns, then give it what comes until it is `done`."""

    def __init__(self, login: Login, host: str) -> None:
        """`host`: the virtual host, as the peer names it."""
        self._login = login
        self._host = host
        self._mechanism: Mechanism | None = None
        self._headed = False
        self._private = False
        #: What came after the login, once that is done.
        self.rest = b""
        self.done = False

    def begin(self, *, private: bool) -> bytes:
        """Return what to send first. `private`: no one else can read what is sent."""
        self._private = private
        return HEADER

    def received(self, data: bytes) -> bytes:
        """Take what came, and return what to send. Raises CannotLogIn and NotAmqp."""
        self.rest += data
        said = b""
        if not self._headed:
            if not HEADER.startswith(self.rest[: len(HEADER)]):
                raise NotAmqp(f"it answered {self.rest[: len(HEADER)]!r}")
            if len(self.rest) < len(HEADER):
                return said
            self.rest, self._headed = self.rest[len(HEADER) :], True
        while not self.done and (frame := self._frame()) is not None:
            said += self._answer(*_read(frame))
        return said

    def _frame(self) -> bytes | None:
        """Take the next frame's body out of what came; None where it is not all there."""
        if len(self.rest) < 8:
            return None
        size, start = int.from_bytes(self.rest[:4], "big"), 4 * self.rest[4]
        if not 8 <= start <= size <= MOST_BYTES or self.rest[5] != 1:
            raise NotAmqp("it sent a frame that is none of a login")
        if len(self.rest) < size:
            return None
        frame, self.rest = self.rest[start:size], self.rest[size:]
        return frame

    def _answer(self, kind: int, fields: list[Any]) -> bytes:
        if kind == _MECHANISMS and self._mechanism is None:
            offered = fields[0].elements if isinstance(fields[0], Array) else fields[:1]
            self._mechanism = mechanism_for(self._login, [_as(str, name) for name in offered], private=self._private)
            return _frame_of(_INIT, self._mechanism.name, self._mechanism.begin(), self._host)
        if self._mechanism is None:
            raise NotAmqp("it answered the login before it was asked")
        if kind == _CHALLENGE:
            return _frame_of(_RESPONSE, None, self._mechanism.answer(_as(bytes, fields[0])), None)
        if kind != _OUTCOME:
            raise NotAmqp("it sent a frame that a login does not have here")
        if code := _as(int, fields[0]):
            raise CannotLogIn(f"refused the login by {self._mechanism.name}: {_OUTCOMES.get(code, 'it failed')}")
        self._mechanism.end(_as(bytes, fields[1] or b"") if len(fields) > 1 else b"")
        self.done = True
        return b""


def _as(kind: type[Field], found: object) -> Field:
    if not isinstance(found, kind) or isinstance(found, bool):
        raise NotAmqp(f"it sent {type(found).__name__} in a field of the login")
    return found


def _read(frame: bytes) -> tuple[int, list[Any]]:
    """Return what kind of frame this is, and its fields."""
    data = Data()
    try:
        data.decode(frame)
        data.rewind()
        data.next()
        found = data.get_py_described()
        # proton gives bytes as views of its own memory.
        fields = [bytes(value) if isinstance(value, memoryview) else value for value in found.value]
        kind = int(found.descriptor)
        if not fields or fields[0] is None:
            raise NotAmqp("it left out a field of the login")
    except NotAmqp:
        raise
    except Exception as error:  # proton raises what it meets
        raise NotAmqp(f"it sent a frame that cannot be read: {type(error).__name__}") from error
    return kind, fields


def _frame_of(kind: int, name: str | None, said: bytes, host: str | None) -> bytes:
    data = Data()
    data.put_described()
    data.enter()
    data.put_ulong(ulong(kind))
    data.put_list()
    data.enter()
    if name is not None:
        data.put_symbol(name)
    data.put_binary(said)
    if host is not None:
        data.put_string(host)
    body = bytes(data.encode())
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x01\x00\x00" + body
