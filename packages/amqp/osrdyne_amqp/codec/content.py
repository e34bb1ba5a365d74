"""Assembles a message from its frames: method, content header, body in pieces."""

from __future__ import annotations

from collections.abc import Callable

from osrdyne_amqp.codec import frames
from osrdyne_amqp.codec.table import MalformedTable, TooManyFields
from osrdyne_amqp.message import Properties

#: Arguments: the properties, why some of them could not be read (None: all were), the body, bytes of the properties.
Complete = Callable[[Properties, str | None, bytes, int], None]


class Content:
    """The message that one channel is receiving: there is one at a time."""

    def __init__(self, failed: Callable[[Exception], None], longest_read: int) -> None:
        #: called with the exception of a callback
        self._failed = failed
        #: longest content header whose table of headers is read, in bytes: reading takes long, and much memory
        self._longest_read = longest_read
        self._stopped = False
        self._complete: Complete | None = None
        self._header = b""
        self._missing = 0
        self._parts: list[bytes] = []

    def begin(self, complete: Complete) -> None:
        """Begin a message after its method; `complete` is called when all of it is here."""
        self._complete = complete
        self._parts.clear()

    def stop(self) -> None:
        """Drop later frames: the channel has ended, and the broker requeues their messages."""
        self._stopped = True

    def receive(self, kind: int, data: bytes, at: int, stop: int) -> bool:
        """Handle a frame of content, with payload data[at:stop]; False if it does not belong to a message here."""
        if self._complete is None or not frames.HEADER <= kind <= frames.BODY:
            return False
        if kind == frames.HEADER:
            self._header = data[at:stop]
            self._missing = frames.read_body_size(data, at)
            if not self._missing:
                self._finish(b"")
            return True
        self._missing -= stop - at
        part = data[at:stop]
        if self._missing > 0:
            self._parts.append(part)
        elif self._parts:
            self._parts.append(part)
            self._finish(b"".join(self._parts))
        else:
            self._finish(part)
        return True

    def _finish(self, body: bytes) -> None:
        complete, header = self._complete, self._header
        self._complete, self._header = None, b""
        self._parts.clear()
        if complete is None or self._stopped:
            return
        properties = Properties.__new__(Properties)  # its __init__ would cost as much as all the rest here
        malformed = f"they have {len(header)} bytes" if len(header) > self._longest_read else None
        try:
            if malformed is None:
                try:
                    properties.__dict__ = frames.read_properties(header)
                except TooManyFields as error:
                    malformed = str(error)
            if malformed is not None:
                malformed = f"the message's headers are not read: {malformed}"
                properties.__dict__ = frames.read_properties(header, with_headers=False)
        except MalformedTable as error:
            properties, malformed = Properties(), f"the message's properties cannot be read: {error}"
        try:
            complete(properties, malformed, body, 0 if malformed else len(header))
        except Exception as error:  # noqa: BLE001 - whatever a callback of the program raises
            self._failed(error)
