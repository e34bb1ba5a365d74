"""What programs work on: a broker, real or model, with an administrator; and helpers to look at what comes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from osrdyne_amqp import Channel, Connection, Message
from osrdyne_amqp.errors import BrokerError
from testbed.waiting import until_async

QUORUM = {"x-queue-type": "quorum"}
CLASSIC = {"x-queue-type": "classic"}
#: Seconds for what must happen.
_PATIENCE_SECONDS = 60.0


class Bench(Protocol):
    """One broker with an empty virtual host."""

    @property
    def version(self) -> str: ...
    async def open(self, user: str = "") -> Connection:
        """Connect, as the administrator or as a user made by `permit`."""

    async def exchange(self, name: str, kind: str = "direct") -> None: ...
    async def policy(self, name: str, pattern: str, apply_to: str, **definition: Any) -> None:
        """Put a policy of priority 10; `_` in keys stands for `-`."""

    async def no_policy(self, name: str) -> None: ...
    async def delete_queue(self, name: str) -> None: ...
    async def permit(self, user: str, configure: str, write: str, read: str) -> None: ...
    async def totals(self, queue: str) -> tuple[int, int, int] | None:
        """Return ready, unacknowledged and all messages as the management API shows them; None: unknown."""

    async def counted_queues(self) -> list[str]:
        """Return the queues of which the management API's list says how many messages they hold."""

    async def restart(self) -> None: ...
    async def lose(self, queue: str) -> None:
        """Lose a quorum queue, as the broker does with one that was declared right before a SIGKILL."""

    async def never_led(self, queue: str) -> bool | None:
        """Say whether the members of a quorum queue say that it never had a leader; None: there is no such queue."""

    async def alarm(self, on: bool) -> None: ...


class Inbox:
    """A consumer that keeps what comes, and settles nothing by itself."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.waiting: asyncio.Queue[Message] = asyncio.Queue()
        self.cancelled = asyncio.Event()
        self.tag = ""

    @classmethod
    async def of(
        cls,
        connection: Connection,
        queue: str,
        *,
        prefetch: int = 10,
        no_ack: bool = False,
        channel: Channel | None = None,
    ) -> Inbox:
        self = cls(channel or await connection.channel(prefetch=prefetch))
        self.tag = await self.channel.consume(
            queue, self.waiting.put_nowait, on_cancel=self.cancelled.set, no_ack=no_ack
        )
        return self

    async def get(self) -> Message:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            return await self.waiting.get()

    async def take(self) -> Message:
        """Get and acknowledge."""
        message = await self.get()
        self.channel.ack(message.delivery_tag)
        return message

    async def bodies(self, count: int) -> list[bytes]:
        return [(await self.take()).body for _ in range(count)]

    @property
    def quiet(self) -> bool:
        """Nothing more has come."""
        return self.waiting.empty()


def seen(message: Message) -> dict[str, Any]:
    """Return the parts of a delivery that must be the same on every broker."""
    properties = {name: value for name, value in vars(message.properties).items() if value is not None}
    properties["headers"] = _plain(properties.get("headers"))
    return {
        "body": message.body,
        "from": (message.exchange, message.routing_key),
        "redelivered": message.redelivered,
        **properties,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in sorted(value.items(), key=str) if name != "time"}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def counts(message: Message) -> tuple[bytes, bool, Any, Any]:
    """Return the body, `redelivered`, and the counters of deliveries in the headers."""
    headers = message.properties.headers or {}
    return message.body, message.redelivered, headers.get("x-delivery-count"), headers.get("x-acquired-count")


async def outcome(awaited: Awaitable[Any]) -> Any:
    """Return the result of an operation, or the class of its error and the broker's code."""
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            return await awaited
    except BrokerError as error:
        return type(error).__name__, error.code


async def until(condition: Callable[[], Any]) -> None:
    """Wait until a condition holds, for as long as any program here may take."""
    await until_async(condition, within=_PATIENCE_SECONDS)


async def ready(channel: Channel, queue: str, count: int) -> None:
    """Wait until so many messages are ready in a queue."""

    async def shown() -> bool:
        return (await channel.declare_queue(queue, passive=True)).ready == count

    await until(shown)


async def gone(channel: Channel, queue: str) -> None:
    """Wait until there is no such queue. A classic one that is on its way out refuses publishes."""

    async def returned() -> bool:
        return await outcome(channel.publish_final("", queue, b"")) is False

    await until(returned)


async def ended(channel: Channel) -> Any:
    """Wait until a channel has ended; return the class of the error and the broker's code."""
    async with asyncio.timeout(_PATIENCE_SECONDS):
        reason = await channel.wait_closed()
    return type(reason).__name__, reason.code
