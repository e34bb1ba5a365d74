"""What the relay needs of Redis. `client` has it on the real one; the simulation brings a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

#: A command and its arguments, as Redis documents it.
Command = tuple[str | bytes | int, ...]


class Away(Exception):
    """Redis did not do what was asked, or its answer was lost: trying again may help."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        #: Whether the commands may have been executed all the same.
        self.sent = sent


#: Takes what came on a channel, and None when the subscription of the channel has begun. It returns at once and raises
#: nothing.
Hear = Callable[[str, bytes | None], None]


class Subscriber(Protocol):
    """A connection that receives pulses. Its methods raise Away when it has ended."""

    async def subscribe(self, *channels: str) -> None: ...

    async def unsubscribe(self, *channels: str) -> None: ...

    async def receive(self) -> None:
        """Wait until the connection has ended, which is raised."""

    async def close(self) -> None:
        """End the connection. Raises nothing."""


class RedisPort(Protocol):
    """Commands and pulses."""

    async def run(self, *commands: Command) -> list[Any]:
        """Execute commands, several as one transaction. Returns the answers in order.

        Publishing may also happen right after the transaction. Raises Away, or RedisRefused where trying again is in
        vain.
        """

    def subscriber(self, hear: Hear) -> Subscriber:
        """Return a connection that passes pulses on to `hear`; it opens at its first use."""

    async def close(self) -> None:
        """End all connections."""
