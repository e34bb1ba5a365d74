"""Links of a connection: how they are attached, and how they end.

Use everything here only in the loop of the connection.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol, Self

import proton

from osrdyne_bus.errors import LinkRefused, MessagingError, PeerLost

#: Seconds for the peer to attach a link.
ATTACH_SECONDS = 10.0


class LinkOwner(Protocol):
    """What a link needs of its connection."""

    loop: asyncio.AbstractEventLoop
    peer: str

    def flush_soon(self) -> None:
        """Write what there is to write before the loop waits again."""

    def gone(self, link: BusLink) -> None:
        """Forget a link."""

    def given_up(self, link: Any) -> None:
        """Note that a link was closed here before the peer answered it."""


class BusLink(ABC):
    """A link of a connection: what senders and subscriptions have in common."""

    def __init__(self, owner: LinkOwner, link: Any) -> None:
        self._owner = owner
        self._link = link
        self._attached: asyncio.Future[None] = owner.loop.create_future()
        #: Why the link ended; None while it is there.
        self.ended: MessagingError | None = None
        #: Called once when an attached link ends without `close`.
        self.on_end: Callable[[MessagingError], None] | None = None

    @property
    def key(self) -> int:
        """The number by which a connection finds the link."""
        return hash(self._link)

    @property
    def session(self) -> Any:
        return self._link.session

    @property
    def is_open(self) -> bool:
        return self.ended is None and self._attached.done()

    async def attach(self) -> Self:
        """Attach the link, and wait until the peer has attached it, too. Raises LinkRefused and PeerLost."""
        self._link.open()
        self._owner.flush_soon()
        try:
            async with asyncio.timeout(ATTACH_SECONDS):
                await asyncio.shield(self._attached)
        except TimeoutError:
            self.close()
            late = f"{self._owner.peer} did not attach {self.address!r} within {ATTACH_SECONDS:g} s"
            raise LinkRefused(late) from None
        except BaseException:
            self.close()
            raise
        return self

    @property
    @abstractmethod
    def address(self) -> str:
        """What the link is attached to."""

    def opened(self) -> None:
        """Note that the peer attached the link."""
        if self.ended is None and not self._attached.done():
            self._attached.set_result(None)

    def end(self, why: MessagingError) -> None:
        """Note that the link has ended, and why."""
        if self.ended is not None:
            return
        self.ended = why
        if not self._attached.done():
            self._attached.set_exception(why)
            self._attached.exception()  # a wait may have ended before
        elif self.on_end is not None:
            self.on_end(why)

    @abstractmethod
    def flowed(self) -> None:
        """Act on what the peer said about credit."""

    def free(self) -> None:
        """Leave nothing of the link in the engine."""
        self._link.close()
        self._link.free()

    def refuse(self, condition: str, description: str) -> None:
        """Detach the link with an error."""
        refuse(self._link, condition, description)

    def close(self) -> None:
        """Detach the link."""
        self.on_end = None
        if self.ended is None:
            if not self._attached.done():
                self._owner.given_up(self._link)
            self.end(PeerLost(f"the link to {self.address!r} was closed here"))
            self._link.close()
            self._owner.gone(self)
            self._owner.flush_soon()


def refuse(link: Any, condition: str, description: str) -> None:
    """Detach a link with an error, also one that was not attached yet."""
    link.open()
    link.condition = proton.Condition(condition, description)
    link.close()


def said_by(condition: Any) -> tuple[str, str]:
    """Return name and description of an AMQP error; both empty where there is none."""
    return (str(condition.name or ""), str(condition.description or "")) if condition else ("", "")
