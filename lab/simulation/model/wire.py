"""The client's half of a connection: what the client's own `Connection` sees where pika's would be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pika import exceptions as pika_errors

from osrdyne_amqp.codec import frames
from osrdyne_amqp.errors import BrokerError, ChannelClosed, Unencodable
from osrdyne_calls.closing import CLOSE_SECONDS
from osrdyne_runtime.forks import OwnerProcess
from simulation.model import history
from simulation.model.lane import Lane
from simulation.model.raw_channel import RawChannel, ignore
from simulation.model.server import ServerConnection

if TYPE_CHECKING:
    from simulation.model.broker import ModelBroker

_FRAME_MAX = 131072
_BASIC_CANCEL = b"\x00\x3c\x00\x1e"


class Wire:
    """One connection as the client's classes see pika's."""

    def __init__(self, broker: ModelBroker, name: str, user: str) -> None:
        self.loop = broker.loop
        self.broker = broker
        self.name = name
        self.user = self.checked_user = user
        #: that of the task that opened the connection: callbacks run in it
        self.context = copy_context()
        self.frame_max = _FRAME_MAX
        self.stream_error: BaseException | None = None
        self.blocked_reason: str | None = None
        self.home = OwnerProcess()
        self.receivers: dict[int, Any] = {}
        self.server: ServerConnection | None = None
        self.is_closed = False
        #: the program is gone: nothing may be sent or called any more
        self.killed = False
        #: nothing that the broker sends comes through any more
        self.silent = False
        self.raws: dict[int, RawChannel] = {}
        self._tags = 0
        self._on_blocked: Callable[[Any, Any], None] = ignore
        self._on_unblocked: Callable[[Any, Any], None] = ignore
        self._on_close: Callable[[Any, Exception], None] = ignore

    # --- what `Connection` calls ---

    def add_on_connection_blocked_callback(self, callback: Callable[[Any, Any], None]) -> None:
        self._on_blocked = callback

    def add_on_connection_unblocked_callback(self, callback: Callable[[Any, Any], None]) -> None:
        self._on_unblocked = callback

    def add_on_close_callback(self, callback: Callable[[Any, Exception], None]) -> None:
        self._on_close = callback

    def channel(self, on_open_callback: Callable[[Any], None]) -> RawChannel:
        if not self.sends("channel"):
            raise pika_errors.ConnectionWrongStateError("closed")
        number = 1
        while number in self.raws:
            number += 1
        raw = self.raws[number] = RawChannel(self, number)
        raw.open(on_open_callback)
        return raw

    def close(self) -> None:
        """Close in good order; what was published before arrives first."""
        if self.is_closed:
            return
        if self.server is None or not self.sends("close connection"):
            self.ended(pika_errors.ConnectionClosedByClient(200, "gone"))
            return
        up = Lane(self.loop, self.broker.rng, self.broker.timing, self.server.arrive, self.broker.context)
        up.last = max([0.0, *(raw.up.last for raw in self.raws.values())])
        for raw in self.raws.values():
            raw.is_closing = True
        up.send(self.server.close)

    def cut(self) -> None:
        if not self.is_closed:
            server = self.server
            self.ended(pika_errors.ConnectionClosedByClient(200, "cut"))
            if server is not None:
                self.broker.client_hung_up(server)

    def blocked_text(self) -> str:
        return "" if self.blocked_reason is None else f" (it has blocked this connection: {self.blocked_reason})"

    def explain(self, error: Exception, what: str) -> BrokerError | Unencodable:
        if isinstance(error, pika_errors.AMQPError):
            return ChannelClosed(f"cannot {what}: the channel is closed")
        return Unencodable(f"cannot {what}: {type(error).__name__}")

    def new_consumer_tag(self, raw: RawChannel) -> str:
        self._tags += 1
        return f"ctag{raw.channel_number}.{self._tags}"

    def forget_calls(self, raw: RawChannel) -> None:
        raw.forget_calls()

    def begin_close_channel(self, raw: RawChannel) -> None:
        raw.forget_calls()
        raw.close()

    async def close_channel(self, raw: RawChannel) -> None:
        if raw.is_closed or self.is_closed or self.killed:
            return
        closed: asyncio.Future[None] = self.loop.create_future()

        def on_close(*_: Any) -> None:
            if not closed.done():
                closed.set_result(None)

        raw.add_on_close_callback(on_close)
        self.begin_close_channel(raw)
        await asyncio.wait([closed], timeout=CLOSE_SECONDS)

    # --- sending ---

    def emit(self, data: bytes) -> None:
        """Take a frame that the client's channel wrote itself: the end of a consumer that the broker cancelled."""
        _, number, _ = frames.FRAME_HEAD.unpack_from(data)
        if data[7:11] != _BASIC_CANCEL:
            raise NotImplementedError("the model knows no such frame")
        raw = self.raws.get(number)
        if raw is not None and raw.server is not None and self.sends("cancel"):
            raw.up.send(raw.server.cancel, data[12 : 12 + data[11]].decode())

    def sends(self, what: str) -> bool:
        """To be called before an operation leaves; False: it cannot."""
        if self._is_over():
            return False
        if self.broker.on_operation is not None:
            self.broker.on_operation(self.name, what)
        return not self._is_over()

    def _is_over(self) -> bool:
        return self.is_closed or self.killed

    # --- what the broker's half calls ---

    def arrive(self, happened: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if not (self.is_closed or self.silent or self.killed):
            happened(*arguments)

    def blocked(self, reason: str) -> None:
        self.blocked_reason = reason
        self.broker.record(history.BLOCKED, self.name)
        self._on_blocked(self, SimpleNamespace(method=SimpleNamespace(reason=reason)))

    def unblocked(self) -> None:
        self.blocked_reason = None
        self.broker.record(history.UNBLOCKED, self.name)
        self._on_unblocked(self, None)

    def closed_by_broker(self, code: int, text: str) -> None:
        self.ended(pika_errors.ConnectionClosedByBroker(code, text))

    def closed_as_asked(self) -> None:
        self.ended(pika_errors.ConnectionClosedByClient(200, "Normal shutdown"))

    def lost(self, why: str) -> None:
        self.ended(pika_errors.StreamLostError(why))

    def silence(self, seconds: float) -> None:
        if not self.is_closed and not self.killed:
            self.ended(pika_errors.AMQPHeartbeatTimeout(f"nothing was heard for {seconds:g} s"))

    def ended(self, error: Exception) -> None:
        """The client learns that its connection is over."""
        if self.is_closed:
            return
        self.is_closed = True
        for raw in list(self.raws.values()):
            raw.ended(pika_errors.ChannelClosedByClient(200, "closed") if raw.is_closing else error)
        self._on_close(self, error)
