"""The broker's half of a connection."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any, Protocol

from simulation.model import history
from simulation.model.lane import Lane
from simulation.model.policies import matches
from simulation.model.refusals import Refusal
from simulation.model.server_channel import ServerChannel
from simulation.model.server_publishing import ClientChannel, ServerPublishing
from simulation.model.stall import Call

if TYPE_CHECKING:
    from simulation.model.broker import ModelBroker


class ClientWire(Protocol):
    """What the client's half hears of its connection."""

    context: Context

    def arrive(self, happened: Callable[..., None], arguments: tuple[Any, ...]) -> None: ...
    def blocked(self, reason: str) -> None: ...
    def unblocked(self) -> None: ...
    def closed_by_broker(self, code: int, text: str) -> None: ...
    def closed_as_asked(self) -> None: ...
    def lost(self, why: str) -> None: ...


class ServerConnection:
    """One open connection. `name` is what the client called it."""

    def __init__(self, broker: ModelBroker, name: str, user: str, heartbeat: float, client: ClientWire) -> None:
        self.broker = broker
        self.name = name
        self.user = user
        self.heartbeat = heartbeat
        self.serial = broker.next_serial()
        self.client = client
        self.open = True
        #: nothing comes through any more
        self.silent = False
        self.down = Lane(broker.loop, broker.rng, broker.timing, client.arrive, client.context)
        self.channels: dict[int, ServerChannel] = {}
        #: what was sent since an alarm, or a channel with too much behind it, stopped this connection; None while it
        #: is read
        self._waiting: list[Call] | None = None
        self._alarmed = False

    # --- from the client ---

    def arrive(self, happened: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        """Something sent by the client is here."""
        if not self.open or self.silent:
            return
        if self._waiting is not None:
            self._waiting.append((happened, arguments))
        else:
            self._read(happened, arguments)

    def _read(self, happened: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if self.broker.in_alarm and getattr(happened, "__func__", None) is ServerPublishing.publish:
            self._waiting = [(happened, arguments)]
            self._alarmed = True
            self.down.send(self.client.blocked, "low on memory")
            return
        channel = getattr(happened, "__self__", None)
        if not isinstance(channel, ServerChannel) or not channel.waits:
            happened(*arguments)
        elif not channel.put_behind(happened, arguments):
            self._waiting = []

    @property
    def blocked(self) -> bool:
        """The broker does not read this connection."""
        return self._waiting is not None

    def alarm_is_over(self) -> None:
        """Read on."""
        if not self._alarmed:
            return
        self._alarmed = False
        if not self.silent:
            self.down.send(self.client.unblocked)
        self.read_on()

    def read_on(self) -> None:
        """Read what has waited, unless something keeps the broker from it still."""
        stalls = (channel.stall for channel in self.channels.values())
        if self._alarmed or not all(stall is None or stall.takes_more for stall in stalls):
            return
        waiting, self._waiting = self._waiting, None
        for happened, arguments in waiting or ():
            self.arrive(happened, arguments)

    def open_channel(self, number: int, client: ClientChannel, opened: Callable[[ServerChannel], None]) -> None:
        down = Lane(self.broker.loop, self.broker.rng, self.broker.timing, self.client.arrive, self.client.context)
        channel = self.channels[number] = ServerChannel(self, number, client, down)
        down.send(opened, channel)

    def close(self) -> None:
        """The client closes the connection. A channel that waits keeps the broker from it for longer than ours do."""
        if any(channel.waits for channel in self.channels.values()):
            return
        self.end("closed by its client")
        self.down.last = max([self.down.last, *(channel.down_last for channel in self.channels.values())])
        self.down.send(self.client.closed_as_asked)

    # --- rights ---

    def may(self, what: str, name: str, kind: str) -> None:
        """Raise a `Refusal` when the user may not configure, write or read this object."""
        permission = self.broker.permissions.get(self.user)
        if permission is None or not matches(getattr(permission, what), name):
            raise Refusal(
                403,
                f"ACCESS_REFUSED - {what} access to {kind} '{name}' in vhost '/' refused for user '{self.user}'",
            )

    def may_any(self, name: str) -> bool:
        """Return whether the user may configure, write or read this object."""
        permission = self.broker.permissions.get(self.user)
        return permission is not None and any(
            matches(getattr(permission, what), name) for what in ("configure", "write", "read")
        )

    # --- the end ---

    def refuse(self, refusal: Refusal) -> None:
        """The broker closes the connection."""
        self.end(f"{refusal.code} {refusal.text}")
        self.down.send(self.client.closed_by_broker, refusal.code, refusal.text)

    def end(self, why: str) -> None:
        """The broker's side ends: channels, then what is exclusive."""
        if not self.open:
            return
        self.open = False
        self._waiting = None
        broker = self.broker
        broker.record(history.DISCONNECTED, self.name, detail=why)
        broker.forget(self)
        for channel in list(self.channels.values()):
            channel.end()
        for queue in broker.owned_by(self.name):
            broker.remove_queue(queue, by=self.name)
