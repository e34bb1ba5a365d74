"""A subscription that is attached again whenever its link or connection ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from osrdyne_bus.addresses import Scheme
from osrdyne_bus.aio.peer_connection import PeerConnection
from osrdyne_bus.credit import CreditWindow
from osrdyne_bus.engine import IncomingMessage, Subscription
from osrdyne_bus.errors import BusClosed, MessagingError, PeerLost
from osrdyne_runtime import log_lines
from osrdyne_runtime.outages import OutageLog
from osrdyne_runtime.retry import Retry

log = log_lines.logger(__name__)

#: Seconds after which a link counts as one that works: the next one is then attached without a pause.
STABLE_LINK_SECONDS = 5.0
#: Seconds for a router to say that it sends no more.
DRAIN_SECONDS = 2.0
#: Returns the bus' present connection, and waits for one where there is none. Raises BusClosed.
Join = Callable[[], "asyncio.Future[PeerConnection]"]


class KeptSubscription:
    """A receiver at one address of each connection that the bus has."""

    def __init__(
        self,
        join: Join,
        address: Callable[[Scheme], str],
        window: CreditWindow,
        received: Callable[[IncomingMessage], None],
    ) -> None:
        """`address` names it, by the scheme of the connection."""
        self._join = join
        self._address = address
        self._received = received
        self.window = window
        self._task: asyncio.Task[None] | None = None
        self._link: Subscription | None = None
        self._lost: asyncio.Future[MessagingError]

    async def open(self) -> None:
        """Attach for the first time, and keep it from then on. Raises LinkRefused and PeerLost."""
        await self._attach()
        self._task = asyncio.create_task(self._keep())

    async def _attach(self) -> None:
        to_peer = await asyncio.shield(self._join())
        address = self._address(to_peer.scheme)
        await to_peer.provide(address)
        self._lost = asyncio.get_running_loop().create_future()
        link = self._link = await to_peer.connection.subscribe(
            address,
            self.window,
            self._received,
            capabilities=to_peer.scheme.capabilities(address),
            drains=to_peer.scheme.routed,
        )
        link.on_end = self._ended
        if link.ended is not None:  # between its attachment and this line
            self._ended(link.ended)

    def _ended(self, why: MessagingError) -> None:
        self.window.closed()
        if not self._lost.done():
            self._lost.set_result(why)

    @property
    def _shown(self) -> str:
        return self._link.address if self._link else ""

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        retry, outage = Retry(), OutageLog(log, "the subscription", tolerated=1)
        while True:
            began = loop.time()
            why = await self._lost
            # A link that ends again and again must not be attached without pause.
            worked_for = loop.time() - began
            pause = retry.failed()
            if worked_for > STABLE_LINK_SECONDS:
                # It is attached again at once. The first pause is that after a try that fails.
                retry.worked()
                pause = 0
            outage.failed(str(why), loop.time(), address=self._shown)
            while True:
                try:
                    await asyncio.sleep(pause)
                    await self._attach()
                except BusClosed:
                    return
                except Exception as error:  # noqa: BLE001 - whatever it is, the subscription is kept
                    # The bus itself logs the end of its connection.
                    if not isinstance(error, PeerLost):
                        outage.failed(repr(error), loop.time(), address=self._shown)
                else:
                    break
                pause = retry.failed()
            outage.over(loop.time(), address=self._shown)

    async def close(self) -> None:
        """Detach, from a router when it sends no more. What is not settled by then goes back to the peer."""
        try:
            if self._task is not None:
                self._task.cancel()
                await asyncio.wait([self._task])
        finally:
            if self._link is not None:
                if self._link.drains:
                    await self._link.drain(DRAIN_SECONDS)
                self._link.close()
            self.window.closed()
