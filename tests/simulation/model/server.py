"""The broker's half of a connection."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any, Protocol

from tests.simulation.model import history
from tests.simulation.model.lane import Lane
from tests.simulation.model.policies import matches
from tests.simulation.model.refusals import Refusal
from tests.simulation.model.server_channel import ServerChannel
from tests.simulation.model.server_publishing import ClientChannel, ServerPublishing

if TYPE_CHECKING:
    from tests.simulation.model.broker import ModelBroker


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
        #: what was sent since the alarm stopped this connection; None while it is read
        self._waiting: list[tuple[Callable[..., None], tuple[Any, ...]]] | None = None

    # --- from the client ---

    def arrive(self, happened: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        """Something sent by the client is here."""
        if not self.open or self.silent:
            return
        if self._waiting is not None:
            self._waiting.append((happened, arguments))
            return
        if self.broker.in_alarm and getattr(happened, "__func__", None) is ServerPublishing.publish:
            self._waiting = [(happened, arguments)]
            self.down.send(self.client.blocked, "low on memory")
            return
        happened(*arguments)

    @property
    def blocked(self) -> bool:
        """An alarm keeps the broker from reading this connection."""
        return self._waiting is not None

    def alarm_is_over(self) -> None:
        """Read on."""
        if self._waiting is None:
            return
        waiting, self._waiting = self._waiting, None
        if self.silent:
            return
        self.down.send(self.client.unblocked)
        for happened, arguments in waiting:
            if self.open:
                happened(*arguments)

    def open_channel(self, number: int, client: ClientChannel, opened: Callable[[ServerChannel], None]) -> None:
        down = Lane(self.broker.loop, self.broker.rng, self.broker.timing, self.client.arrive, self.client.context)
        channel = self.channels[number] = ServerChannel(self, number, client, down)
        down.send(opened, channel)

    def close(self) -> None:
        """The client closes the connection."""
        self.end("closed by its client")
        self.down.last = max([self.down.last, *(one.down_last for one in self.channels.values())])
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
