"""The model broker: who is connected to it, and the faults that befall it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from urllib.parse import unquote, urlsplit

from osrdyne_amqp import Connection
from osrdyne_amqp.errors import AccessRefused, BrokerUnreachable
from simulation.model import history
from simulation.model.client import ModelConnection
from simulation.model.history import History
from simulation.model.management import ModelManagement
from simulation.model.message import Message
from simulation.model.objects import Objects, Version
from simulation.model.refusals import Refusal
from simulation.model.routing import direct_address
from simulation.model.server import ServerConnection
from simulation.model.server_channel import ServerChannel
from simulation.model.timing import Range, Timing
from simulation.model.wire import Wire

__all__ = ["ModelBroker", "OnOperation", "Version"]

#: Called before an operation leaves a client: connection name, what ("publish", "ack", "declare", ...).
OnOperation = Callable[[str, str], None]

_WHERE = "the model broker"


class ModelBroker(Objects):
    """One node with one virtual host. Make it within a running loop.

    Methods that are not asynchronous take effect at once, at the loop's time of the call.
    """

    def __init__(
        self,
        rng: random.Random,
        *,
        version: Version = "4.3",
        timing: Timing | None = None,
        history: History | None = None,
    ) -> None:
        super().__init__(rng, version, timing, history)
        #: Called before each operation of each client leaves it. It may call `kill` or `cut`: then the operation, and
        #: all that follow on that connection, never leave.
        self.on_operation: OnOperation | None = None
        self.in_alarm = False
        self._connections: dict[str, ServerConnection] = {}
        self._wires: dict[str, tuple[Wire, ModelConnection]] = {}
        #: Channels whose connection is gone, and that still wait for a lost queue.
        self.lingering: dict[ServerChannel, None] = {}

    # --- clients ---

    async def open(self, uri: str, *, name: str, heartbeat: float = 5.0, timeout: float = 10.0) -> Connection:
        """Connect as `Connection.open` does: `amqp://user:password@host/vhost`, of which only the user counts.

        Connection names must be unique among open connections; the faults below take them. Raises
        `BrokerUnreachable` while stopped, `AccessRefused` for a user that was never granted anything.
        """
        await asyncio.sleep(self.between(self.timing.connect))
        user = unquote(urlsplit(uri).username or "guest")
        if not self.running:
            raise BrokerUnreachable(f"{_WHERE}: nothing listens there (connection refused); is the broker running?")
        if user not in self._users:
            raise AccessRefused(f"{_WHERE}: the broker refused the user name or password", code=403)
        if name in self._connections:
            raise ValueError(f"there is a connection {name!r} already")
        wire = Wire(self, name, user)
        wire.server = self._connections[name] = ServerConnection(self, name, user, heartbeat, wire)
        connection = ModelConnection(wire, _WHERE, timeout)  # type: ignore[arg-type]
        self._wires[name] = (wire, connection)
        self.record(history.CONNECTED, name)
        return connection

    def management(self) -> ModelManagement:
        """Return the management API; each has its own faults."""
        return ModelManagement(self)

    def connection_names(self) -> list[str]:
        """Return the names of the connections that the broker has open, oldest first."""
        return list(self._connections)

    # --- faults ---

    def cut(self, connection: str) -> None:
        """Break a connection: its client sees it at once, the broker a moment later; what was under way may or may
        not arrive. Nothing happens when there is no such connection.
        """
        server = self._connections.get(connection)
        if server is None:
            return
        self.record(history.FAULT, connection, detail=("cut",))
        wire, _ = self._wires[connection]
        self.client_hung_up(server)
        self.loop.call_soon(wire.lost, "connection reset", context=wire.context)
        wire.silent = True

    def half_open(self, connection: str) -> None:
        """Let nothing through any more, in either direction; both sides notice by missing heartbeats."""
        server = self._connections.get(connection)
        if server is None:
            return
        self.record(history.FAULT, connection, detail=("half_open",))
        wire, _ = self._wires[connection]
        server.silent = wire.silent = True
        beat = server.heartbeat
        self.loop.call_later(self.between(Range(1.5 * beat, 2 * beat)), wire.silence, 2 * beat, context=wire.context)
        # RabbitMQ looks once a heartbeat and gives up at the second look without a byte.
        self.loop.call_later(self.between(Range(2 * beat, 3 * beat)), server.end, "missed heartbeats")

    def kill(self, connection: str) -> None:
        """The client's process is gone: nothing of it is sent or called back any more, later calls fail, `close`
        returns at once; the broker sees the end a moment later. The caller cancels the client's tasks.
        """
        server = self._connections.get(connection)
        if server is None:
            return
        self.record(history.FAULT, connection, detail=("kill",))
        wire, client = self._wires[connection]
        wire.killed = True
        client.killed()
        self.client_hung_up(server)

    def client_hung_up(self, server: ServerConnection) -> None:
        """The client's side of a connection has ended; the broker notices after what was under way."""
        notices = self.timing.latency
        if server.blocked:
            # An alarm keeps the broker from reading; it notices when its own heartbeats fail.
            notices = Range(0.5 * server.heartbeat, server.heartbeat)
        self.loop.call_later(self.between(notices), server.end, "closed without a word")

    def stop(self) -> None:
        """End every connection and keep what is durable."""
        self.record(history.BROKER_STOPPED)
        self.running = False
        for server in list(self._connections.values()):
            server.refuse(Refusal(320, "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'"))
        self._ended()

    def crash(self, lose: Iterable[str] = ()) -> None:
        """End as SIGKILL ends a broker: without notice to clients, and `lose` of these queues."""
        self.record(history.BROKER_STOPPED, detail=history.KILLED)
        self.running = False
        for server in list(self._connections.values()):
            wire, _ = self._wires[server.name]
            server.end("the broker was killed")
            self.loop.call_soon(wire.lost, "connection reset", context=wire.context)
            wire.silent = True
        self._ended()
        for name in lose:
            self.lose(name)

    def kill_and_start(self, *, lose: Iterable[str] = (), down: float = 1.0) -> None:
        """`crash`, and `start` so many seconds later."""
        self.crash(lose)
        self.loop.call_later(down, self.start)

    def _ended(self) -> None:
        for channel in list(self.lingering):
            channel.end_at_once()
        for queue in list(self.queues.values()):
            if not queue.durable:
                self.remove_queue(queue, by="")

    def lose(self, queue: str) -> None:
        """Lose a quorum queue that was declared shortly before the broker was killed.

        What it held is gone, of confirmed messages too; it keeps its bindings. Up to RabbitMQ 4.2 it never works again
        and holds up every channel that uses it, until it is deleted. Later it comes back empty. Who consumes from it
        hears nothing.
        """
        found = self.queues.get(queue)
        if found is None or found.kind != "quorum":
            raise ValueError(f"there is no quorum queue {queue!r} to lose")
        found.lose()

    def start(self) -> None:
        """Come back with what is durable; an alarm is over. Nothing happens while it runs."""
        if self.running:
            return
        self.running = True
        self.in_alarm = False
        self.record(history.BROKER_STARTED)
        for queue in self.queues.values():
            queue.restart()
            self.dead_letters.resume(queue)

    def alarm(self, on: bool) -> None:
        """Memory or disk alarm: connections that publish are blocked; what they send waits at the broker."""
        self.record(history.FAULT, detail=("alarm", on))
        self.in_alarm = on
        if not on:
            for server in list(self._connections.values()):
                server.alarm_is_over()

    # --- for the other parts of the model ---

    def forget(self, server: ServerConnection) -> None:
        """A connection has ended."""
        del self._connections[server.name]
        del self._wires[server.name]

    def reply_directly(self, address: str, message: Message) -> None:
        """Deliver a reply to an address of direct reply-to; when its listener is gone, nothing happens."""
        for server in self._connections.values():
            for channel in server.channels.values():
                tag = channel.reply_tag
                if tag is not None and direct_address(server.serial, channel.number, tag) == address:
                    channel.deliver_reply(message, tag)
