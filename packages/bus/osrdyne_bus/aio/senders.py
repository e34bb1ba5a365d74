"""The sender links of one connection: one for each address, attached when it is first used."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from osrdyne_bus.addresses import Scheme
from osrdyne_bus.engine import BusConnection, SendLink
from osrdyne_bus.errors import LinkRefused

#: Seconds for which a refused address is not tried again. RabbitMQ 4.0 ends a session for each try.
REFUSED_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class AnyAddress:
    """Stands for a link to any address, which each message names. Each purpose has its own.

    A broker ends such a link for a message that the user may not send, with all that is on its way there.
    """

    purpose: str


def seen(task: asyncio.Task[Any]) -> None:
    """Take note of a task's error: all that waited for it may have left, and asyncio would log it as forgotten."""
    if not task.cancelled():
        task.exception()


class Senders:
    """Keeps a link for each address, and drops those without use for a while."""

    def __init__(self, connection: BusConnection, scheme: Scheme, *, unused: float) -> None:
        """`unused`: seconds after which a link without use is dropped."""
        self._connection = connection
        self._scheme = scheme
        self._unused = unused
        self._links: dict[str | AnyAddress, SendLink] = {}
        self._attaching: dict[str | AnyAddress, asyncio.Task[SendLink]] = {}
        #: Refused addresses, and until when they are not tried again, in seconds of the loop's clock.
        self._refused: dict[str | AnyAddress, tuple[LinkRefused, float]] = {}
        self._timer = connection.loop.call_later(unused / 2, self._drop_unused)

    def ready(self, address: str | AnyAddress) -> SendLink | None:
        """Return the link to an address where it is attached."""
        link = self._links.get(address)
        return link if link is not None and link.is_open else None

    async def attached(self, address: str | AnyAddress) -> SendLink:
        """Return the link to an address. Raises LinkRefused and PeerLost."""
        if (link := self.ready(address)) is not None:
            return link
        if (refused := self._refused.get(address)) is not None:
            if self._connection.loop.time() < refused[1]:
                raise refused[0].with_traceback(None)
            del self._refused[address]
        task = self._attaching.get(address)
        if task is None:
            task = self._attaching[address] = asyncio.create_task(self._attach(address))
            task.add_done_callback(seen)
        # One that stops waiting must not take the link away from the others.
        return await asyncio.shield(task)

    async def _attach(self, address: str | AnyAddress) -> SendLink:
        try:
            if isinstance(address, AnyAddress):
                link = await self._connection.sender(None)
            else:
                link = await self._connection.sender(
                    address,
                    capabilities=self._scheme.capabilities(address),
                    settled=self._scheme.sends_settled(address),
                )
            self._links[address] = link
            return link
        except LinkRefused as error:
            if error.condition:  # which says that the peer refused it, and not that it was slow
                self._refused[address] = (error, self._connection.loop.time() + REFUSED_SECONDS)
            raise
        finally:
            del self._attaching[address]

    def __len__(self) -> int:
        return sum(link.is_open for link in list(self._links.values()))  # also read by other threads

    def _drop_unused(self) -> None:
        now = self._connection.loop.time()
        for address, link in list(self._links.items()):
            if link.is_open and (not link.is_idle or now - link.last_used < self._unused):
                continue
            link.close()
            del self._links[address]
        self._refused = {address: refusal for address, refusal in self._refused.items() if now < refusal[1]}
        self._timer = self._connection.loop.call_later(self._unused / 2, self._drop_unused)

    def close(self) -> None:
        """Drop nothing any more: the connection has ended."""
        self._timer.cancel()
