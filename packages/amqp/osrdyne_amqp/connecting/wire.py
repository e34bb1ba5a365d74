# ruff: noqa: SLF001  (this module is where pika's private names are used, and nowhere else)
"""Pika's asyncio connection with a shorter hot path.

Pika does the handshake, TLS, heartbeats and the states of connection and channels. Publishes,
acknowledgements, confirms, deliveries and returns pass it by: channels register a receiver for their frames,
and all frames that are written in one iteration of the loop leave in one write. Why:
docs/decisions/0004-own-frames-and-table-codec.md.

Private names of pika 1.4 used here: those overridden in `Wire`, those in `PIKA_PRIVATE`. A test checks that
they exist.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pika import exceptions as pika_errors
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.credentials import ExternalCredentials
from pika.frame import decode_frame

from osrdyne_amqp.codec.frames import FRAME_END, FRAME_HEAD, FRAME_OVERHEAD, HEADER, longest_read
from osrdyne_amqp.errors import BrokerError, ChannelClosed, Unencodable
from osrdyne_calls.closing import CLOSE_SECONDS
from osrdyne_runtime.forks import OwnerProcess

#: what is used of pika's connection and channel beside what `Wire` overrides; see the module's docstring
PIKA_PRIVATE = {
    "connection": (
        "_connection_workflow",
        "_frame_buffer",
        "_nbio",
        "_opened",
        "_process_frame",
        "_terminate_stream",
        "_transport",
    ),
    "channel": ("_blocked", "_blocking", "_generate_consumer_tag"),
    "transport": ("_MAX_CONSUME_BYTES", "_MAX_RECV_BYTES", "_STATE_ACTIVE", "_sock", "_state"),
    "workflow": ("_connector",),
}

#: Bytes taken from the socket at once. Pika's 4096 makes large bodies slow.
_RECEIVE_BYTES = 65536
#: Longest content header that is taken, in bytes. RabbitMQ sends a header as one frame, however long it is: a publisher
#: with AMQP 1.0 may fill a message of 16 MiB with application properties. Twice of that, because it grows on the way.
_LONGEST_HEADER = 32 * 1024 * 1024
#: Seconds for which a host name may be looked up when an attempt to connect is given up.
_LOOKUP_SECONDS = 3.0

#: Takes kind, buffer, start and end of a frame's payload; False: the frame is one for pika.
Receiver = Callable[[int, bytes, int, int], bool]

if TYPE_CHECKING:  # pika has no types
    _Base = Any
else:
    _Base = AsyncioConnection


class Wire(_Base):  # type: ignore[misc]
    """The connection as pika sees it; `Connection` is what users see."""

    def __init__(self, parameters: Any, **callbacks: Any) -> None:
        self._outgoing: list[bytes] = []
        self._write_planned = False
        #: What `gather` was called with since the last write.
        self._gathered: list[Callable[[], None]] = []
        self._heard = 0.0  # loop time of the last bytes from the broker
        self._watch: asyncio.TimerHandle | None = None
        self._frame_buffer = b""  # pika's own name: it holds what is left of the handshake
        #: What has arrived of a long content header, and how many bytes of it have not.
        self._long: list[bytes] = []
        self._missing = 0
        self.loop = asyncio.get_running_loop()
        self.receivers: dict[int, Receiver] = {}
        #: the broker's code and text when it closed the connection; 0 and "" before
        self.close_code = 0
        self.close_text = ""
        #: why the transport was lost, when it was
        self.stream_error: BaseException | None = None
        self.blocked_reason: str | None = None
        self.frame_max = 0  # agreed while connecting
        self._plaintext = parameters.ssl_options is None
        self.user: str = parameters.credentials.username
        #: The user that the broker has checked; None where it reads that from a certificate.
        self.checked_user = None if isinstance(parameters.credentials, ExternalCredentials) else self.user
        self.home = OwnerProcess()
        super().__init__(parameters, custom_ioloop=self.loop, **callbacks)

    def _adapter_connect_stream(self) -> None:
        create = self._nbio.create_streaming_connection

        def create_or_report(*, sock: Any, on_done: Callable[[Any], None], **options: Any) -> Any:
            try:
                return create(sock=sock, on_done=on_done, **options)
            except ValueError:
                # The peer has hung up already, as a proxy without its broker does. Pika then raises into the loop,
                # where the exception is lost, and the attempt would only end with its timeout.
                sock.close()
                return self.loop.call_soon(
                    on_done, ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
                )

        self._nbio.create_streaming_connection = create_or_report
        super()._adapter_connect_stream()

    # --- out ---

    def emit(self, data: bytes) -> None:
        """Queue whole frames. All that is queued in one iteration of the loop leaves in one write.

        Raises OtherProcess in a fork of the process that opened the connection.
        """
        self.home.check("this connection")
        if not self._write_planned:
            self._plan_write()
        self._outgoing.append(data)

    def gather(self, send: Callable[[], None]) -> None:
        """Call `send`, which emits frames, just before the next write, or before the next frame of pika, as a close."""
        if not self._write_planned:
            self._plan_write()
        self._gathered.append(send)

    def _plan_write(self) -> None:
        self._write_planned = True
        self.loop.call_soon(self._flush)

    def _emit_gathered(self) -> None:
        gathered, self._gathered = self._gathered, []
        for send in gathered:
            send()

    def _adapter_emit_data(self, data: bytes) -> None:
        self._emit_gathered()
        self.emit(data)

    def _flush(self) -> None:
        self._emit_gathered()
        self._write_planned = False
        data = b"".join(self._outgoing)
        self._outgoing.clear()
        transport = self._transport
        if transport is None:
            return
        if self._plaintext and transport._state == transport._STATE_ACTIVE and not transport.get_write_buffer_size():
            # Pika would wait for the socket to be writable: a turn of the loop and two system calls more.
            # An error is left to pika, which meets it again and knows what to do.
            with contextlib.suppress(OSError):
                data = data[transport._sock.send(data) :]
        if data:
            transport.write(data)

    # --- in ---

    def _proto_connection_made(self, transport: Any) -> None:
        transport._MAX_RECV_BYTES = _RECEIVE_BYTES
        if self._plaintext:
            # One read each time there is something: pika reads until the system says that there is no more, which
            # was a tenth of all processor time. TLS needs it: decrypted data does not make the socket readable.
            transport._MAX_CONSUME_BYTES = 1
        super()._proto_connection_made(transport)

    def _on_data_available(self, data_in: bytes) -> None:
        if not self._opened:
            super()._on_data_available(data_in)
            return
        self.bytes_received += len(data_in)
        self._heard = self.loop.time()
        if self._missing > 0:
            self._long.append(data_in)
            self._missing -= len(data_in)
            if self._missing > 0:
                return
            data_in = b"".join(self._long)
            self._long.clear()
        data = self._frame_buffer + data_in if self._frame_buffer else data_in
        receivers = self.receivers
        at, end = 0, len(data)
        while at + FRAME_OVERHEAD <= end:
            kind, number, size = FRAME_HEAD.unpack_from(data, at)
            stop = at + FRAME_OVERHEAD - 1 + size
            if stop >= end:
                # What was agreed bounds what is kept of a frame that has not arrived in full.
                if size > longest_read(self.frame_max):
                    if kind != HEADER or size > _LONGEST_HEADER:
                        raise pika_errors.InvalidFrameError("a frame is longer than was agreed")
                    self._missing = stop + 1 - end
                break
            if data[stop] != FRAME_END:
                raise pika_errors.InvalidFrameError("a frame does not end where its size says")
            receive = receivers.get(number)
            if receive is None or not receive(kind, data, at + FRAME_OVERHEAD - 1, stop):
                _, frame = decode_frame(data[at : stop + 1])
                self._process_frame(frame)
            at = stop + 1
        self._frame_buffer = data[at:]

    def watch(self) -> None:
        """Give the connection up when nothing was received for two heartbeats.

        Pika checks only every `heartbeat` + 5 s whether anything came: with a heartbeat of 5 s it needs up to 20 s.
        """
        self._heard = self.loop.time()
        self._check(2.0 * float(self.params.heartbeat))

    def _check(self, limit: float) -> None:
        rest = self._heard + limit - self.loop.time()
        if self.is_closed or not limit:
            return
        if rest > 0:
            self._watch = self.loop.call_later(rest, self._check, limit)
        else:
            self._terminate_stream(pika_errors.AMQPHeartbeatTimeout(f"nothing was heard for {limit:g} s"))

    def _proto_connection_lost(self, error: Any) -> None:
        self.stream_error = error  # pika keeps only its text
        super()._proto_connection_lost(error)

    def _on_stream_terminated(self, error: Any) -> None:
        if self._watch is not None:
            self._watch.cancel()
        super()._on_stream_terminated(error)

    def _on_connection_close_from_broker(self, method_frame: Any) -> None:
        self.close_code = int(method_frame.method.reply_code)
        self.close_text = str(method_frame.method.reply_text)
        super()._on_connection_close_from_broker(method_frame)

    def _on_connection_workflow_done(self, conn_or_exc: Any) -> None:
        # pika 1.4.4 reports an aborted handshake as an exception class, which its own assertion then refuses
        super()._on_connection_workflow_done(conn_or_exc() if isinstance(conn_or_exc, type) else conn_or_exc)

    # --- what channels and connections ask for ---

    def blocked_text(self) -> str:
        return "" if self.blocked_reason is None else f" (it has blocked this connection: {self.blocked_reason})"

    def explain(self, error: Exception, what: str) -> BrokerError | Unencodable:
        """Return the error for a call that pika refused before sending it."""
        if isinstance(error, (pika_errors.ChannelWrongStateError, pika_errors.ConnectionWrongStateError)):
            return ChannelClosed(f"cannot {what}: the channel is closed")
        return Unencodable(f"cannot {what}: {type(error).__name__}")

    def new_consumer_tag(self, channel: Any) -> str:
        return str(channel._generate_consumer_tag())

    def forget_calls(self, channel: Any) -> None:
        """Stop waiting for a call's answer: pika would queue a close behind it."""
        channel._blocked.clear()
        channel._blocking = None

    def begin_close_channel(self, channel: Any) -> None:
        """Ask the broker to close a channel."""
        self.forget_calls(channel)
        with contextlib.suppress(pika_errors.AMQPError):
            channel.close()

    async def close_channel(self, channel: Any) -> None:
        """Close a channel and wait for the broker's word, for at most CLOSE_SECONDS."""
        if channel.is_closed:
            return
        closed: asyncio.Future[None] = self.loop.create_future()

        def on_close(*_: Any) -> None:
            if not closed.done():
                closed.set_result(None)

        channel.add_on_close_callback(on_close)
        self.begin_close_channel(channel)
        await asyncio.wait([closed], timeout=CLOSE_SECONDS)

    async def lookup_done(self, outcome: asyncio.Future[BaseException | None]) -> None:
        """Wait, for some seconds at most, until an opening that ends with `outcome` can be given up.

        While a host name is looked up pika cannot: it would say that it did, and connect all the same.
        """
        workflow = self._connection_workflow
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOKUP_SECONDS):
                while not outcome.done() and workflow is not None and workflow._connector is None:  # noqa: ASYNC110 - pika has no callback for it
                    await asyncio.sleep(0.005)

    def cut(self) -> None:
        """End the stream without asking the broker."""
        if not self.is_closed:
            self._terminate_stream(pika_errors.ConnectionClosedByClient(200, "cut"))
