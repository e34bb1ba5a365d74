"""What the relay needs of Redis. `redis_client` has it on the real one; the simulation brings a model."""

from __future__ import annotations

from typing import Any, Protocol

#: A command and its arguments, as Redis documents it.
Command = tuple[str | bytes | int, ...]


class Away(Exception):
    """Redis did not do what was asked, or its answer was lost: trying again may help."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        #: Whether the commands may have been executed all the same.
        self.sent = sent


class Subscriber(Protocol):
    """A connection that receives pulses. Every method raises Away when it has ended."""

    async def subscribe(self, *channels: str) -> None: ...

    async def unsubscribe(self, *channels: str) -> None: ...

    async def next(self) -> tuple[str, bytes | None]:
        """Wait for a pulse: its channel and content. Without content, the channel's subscription has begun."""

    async def close(self) -> None:
        """End the connection. Raises nothing."""


class RedisPort(Protocol):
    """Commands and pulses."""

    async def run(self, *commands: Command) -> list[Any]:
        """Execute commands, several as one transaction; their keys are in one slot. Returns the answers in order.

        Publishing may also happen right after the transaction. Raises Away, or RedisRefused where trying again is in
        vain.
        """

    def subscriber(self) -> Subscriber:
        """Return a connection for pulses, which opens at its first use."""

    async def close(self) -> None:
        """End all connections."""
