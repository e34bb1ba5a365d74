"""A connection to one virtual host: opened once, ended once, with a reason."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from pika import exceptions as pika_errors

from osrdyne_amqp import awake
from osrdyne_amqp.channels.channel import Channel
from osrdyne_amqp.connecting import opening
from osrdyne_amqp.connecting.wire import Wire
from osrdyne_amqp.errors import (
    AccessRefused,
    BrokerError,
    BrokerTimeout,
    BrokerUnreachable,
    ChannelClosed,
    ConnectionLost,
    Locked,
    NotFound,
    PreconditionFailed,
)
from osrdyne_calls.closing import CLOSE_SECONDS, in_time
from osrdyne_runtime import log_lines

log = log_lines.logger(__name__)

_CHANNEL_ERRORS: dict[int, type[BrokerError]] = {
    403: AccessRefused,
    404: NotFound,
    405: Locked,
    406: PreconditionFailed,
}


class Connection:
    """A connection to the broker; open it with `open`. Use it only in the thread of its event loop."""

    def __init__(self, wire: Wire, where: str, timeout: float) -> None:
        self._wire = wire
        #: The broker's address for people, without a password.
        self.where = where
        self._timeout = timeout
        self._closed: asyncio.Future[BrokerError | None] = wire.loop.create_future()
        self._closing = False
        self._channels: set[Channel] = set()
        self._unblocked = asyncio.Event()
        self._unblocked.set()
        wire.add_on_connection_blocked_callback(self._on_blocked)
        wire.add_on_connection_unblocked_callback(self._on_unblocked)
        wire.add_on_close_callback(self._on_closed)

    @classmethod
    async def open(
        cls,
        uri: str,
        *,
        name: str,
        heartbeat: float = 5.0,
        timeout: float = 10.0,
        answers: float = 10.0,
    ) -> Connection:
        """Connect to `amqp://` or `amqps://` user:password@host:port/vhost, percent-encoded, within `timeout`
        seconds.

        `name` is what the broker shows for this connection. A peer that is silent for two heartbeats (whole
        seconds) is given up. The broker has `answers` seconds for each later answer. The query takes pika's options,
        and for TLS those of `osrdyne_amqp.connecting.tls`: `?cacertfile=/etc/ssl/ca.pem`.

        Raises InvalidUri, BrokerUnreachable, TlsFailed, AccessRefused (log-in, virtual host). No password in
        any text.
        """
        parameters, place = opening.parameters(uri, name, heartbeat, timeout)
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[BaseException | None] = loop.create_future()

        def settle(_: Any, error: BaseException | None = None) -> None:
            if not outcome.done():
                outcome.set_result(error)

        wire = Wire(parameters, on_open_callback=settle, on_open_error_callback=settle)
        self = cls(wire, place.where, answers)
        try:
            async with asyncio.timeout(timeout):
                error = await asyncio.shield(outcome)
        except TimeoutError:
            await in_time(self._abandon(outcome), CLOSE_SECONDS)
            raise BrokerUnreachable(
                f"{place}: no AMQP answer within {timeout:g} s; check that this is the broker's AMQP "
                "port (5672, with TLS 5671) and that the broker is healthy"
            ) from None
        except BaseException:
            await in_time(self._abandon(outcome), CLOSE_SECONDS)
            raise
        if error is not None:
            wire.cut()
            await _socket_closed()
            causes = [cause for cause in (error, wire.stream_error) if cause is not None]
            raise opening.why_not_open(causes, wire.close_code, wire.close_text, place) from None
        wire.frame_max = int(wire.params.frame_max)
        wire.watch()
        return self

    @property
    def is_open(self) -> bool:
        return not self._closed.done() and not self._closing

    @property
    def user(self) -> str | None:
        """Name of the user that this connection logged in as; None where a certificate names it."""
        return self._wire.checked_user

    @property
    def blocked(self) -> bool:
        """The broker takes no publishes for now (memory or disk alarm): confirms are late, none is lost."""
        return self._wire.blocked_reason is not None

    @property
    def blocked_reason(self) -> str | None:
        """The broker's reason for blocking this connection, None while it is not blocked."""
        return self._wire.blocked_reason

    async def unblocked(self) -> None:
        """Wait while the broker has blocked this connection. Returns also when the connection ends."""
        await self._unblocked.wait()

    async def wait_closed(self) -> BrokerError | None:
        """Wait until the connection has ended, and return why; None when `close` was called."""
        return await asyncio.shield(self._closed)

    async def channel(self, *, confirm: bool = False, prefetch: int | None = None) -> Channel:
        """Open a channel, if asked with publisher confirms or with a prefetch (unacknowledged deliveries a
        consumer).

        Raises BrokerTimeout, the reason for which the connection ended, or OtherProcess in a fork.
        """
        self._wire.home.check("this connection")
        if not self.is_open:
            raise self._end()
        opened: asyncio.Future[None] = self._wire.loop.create_future()

        def on_open(_: Any) -> None:
            if not opened.done():
                opened.set_result(None)

        try:
            raw = self._wire.channel(on_open_callback=on_open)
        except pika_errors.AMQPError as error:
            raise ChannelClosed(f"{self.where}: no channel can be opened ({type(error).__name__})") from None
        channel = Channel(self._wire, raw, confirm=confirm, timeout=self._timeout)
        self._adopt(channel, raw, opened)
        try:
            await awake.result_of(opened, self._timeout)
            await channel.start(prefetch=prefetch)
        except awake.NotInTime:
            self._wire.begin_close_channel(raw)
            blocked = self._wire.blocked_text()
            raise BrokerTimeout(f"{self.where}: no channel within {self._timeout:g} s{blocked}") from None
        except BaseException:
            self._wire.begin_close_channel(raw)
            raise
        return channel

    def _adopt(self, channel: Channel, raw: Any, opened: asyncio.Future[None]) -> None:
        """Route the channel's frames to it, and report its end to it."""
        receive = channel.receive
        number = raw.channel_number
        self._wire.receivers[number] = receive
        self._channels.add(channel)

        def on_close(_: Any, error: Exception) -> None:
            if self._wire.receivers.get(number) is receive:
                del self._wire.receivers[number]
            self._channels.discard(channel)
            reason = self._channel_reason(error)
            channel.finish(reason)
            if not opened.done():
                opened.set_exception(reason.again())

        def on_cancel(frame: Any) -> None:
            channel.cancelled_by_broker(frame.method.consumer_tag)

        raw.add_on_close_callback(on_close)
        raw.add_on_cancel_callback(on_cancel)

    async def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Close the connection; what was published before is sent first. Never raises.

        Takes `timeout` seconds at most: then the connection ends without the broker's word. Does nothing in a fork: the
        connection is the other process's.
        """
        if not self._wire.home.is_here:
            return
        if not self._closed.done():
            self._closing = True
            for channel in self._channels:
                channel.forget_calls()
            with contextlib.suppress(pika_errors.AMQPError):
                self._wire.close()
            try:
                await asyncio.wait([self._closed], timeout=timeout)
            except asyncio.CancelledError:
                # Close the socket without the broker's answer.
                self._wire.cut()
                await _socket_closed()
                raise
        if not self._closed.done():
            self._wire.cut()
            await asyncio.shield(self._closed)

    async def _abandon(self, outcome: asyncio.Future[BaseException | None]) -> None:
        """Give up an attempt to connect, and wait until its socket is closed."""
        await self._wire.lookup_done(outcome)
        if outcome.done() and outcome.result() is None:
            await self.close()  # it has just succeeded
            return
        with contextlib.suppress(pika_errors.AMQPError):
            self._wire.close()
        await asyncio.wait([outcome], timeout=1.0)
        await _socket_closed()

    # --- callbacks of pika ---

    def _on_blocked(self, _: Any, frame: Any) -> None:
        self._wire.blocked_reason = str(frame.method.reason)
        self._unblocked.clear()
        log.warning("broker blocked this connection", extra={"broker": self.where, "reason": self._wire.blocked_reason})

    def _on_unblocked(self, *_: Any) -> None:
        self._wire.blocked_reason = None
        self._unblocked.set()
        log.info("broker unblocked this connection", extra={"broker": self.where})

    def _on_closed(self, _: Any, error: Exception) -> None:
        self._wire.blocked_reason = None
        self._unblocked.set()
        self._closed.set_result(None if self._closing else self._reason(error))

    def _end(self) -> BrokerError:
        reason = self._closed.result() if self._closed.done() else None
        if reason is None:
            return ConnectionLost(f"{self.where}: the connection was closed by this program")
        return reason.again()

    def _reason(self, error: BaseException) -> BrokerError:
        match error:
            case pika_errors.ConnectionClosedByBroker():
                text = f"the broker closed the connection: {error.reply_code} {error.reply_text}"
                return ConnectionLost(f"{self.where}: {text}", code=error.reply_code)
            case pika_errors.ConnectionClosedByClient():
                return ConnectionLost(f"{self.where}: the connection was closed by this program")
            case pika_errors.AMQPHeartbeatTimeout():
                return ConnectionLost(f"{self.where}: no sign of life from the broker, {error.args[0]}")
        code = 501 if isinstance(self._wire.stream_error, pika_errors.ProtocolSyntaxError) else 0
        text = "; ".join(map(str, error.args))
        return ConnectionLost(f"{self.where}: the connection broke: {text}", code=code)

    def _channel_reason(self, error: BaseException) -> BrokerError:
        match error:
            case pika_errors.ChannelClosedByBroker():
                kind = _CHANNEL_ERRORS.get(error.reply_code, ChannelClosed)
                return kind(f"{self.where}: {error.reply_text} ({error.reply_code})", code=error.reply_code)
            case pika_errors.ChannelClosedByClient():
                return ChannelClosed("the channel was closed by this program")
        return self._reason(error)


async def _socket_closed() -> None:
    """Let pika close the socket of an abandoned attempt: a caller that ends its loop now would leak it.

    Pika closes the socket in a chain of loop callbacks, the last of them after it reported the end of the attempt.
    """
    for _ in range(10):
        await asyncio.sleep(0)
