"""What a bus asks a mesh of routers: whether all of them know an address, and how they deliver it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from osrdyne_bus.aio.peer_connection import PeerConnection
from osrdyne_bus.engine.router_management import RouterManagement
from osrdyne_bus.errors import DeliveryFailure, MessagingError
from osrdyne_runtime import log_lines

log = log_lines.logger(__name__)

#: Seconds for all routers to know an address. They announce what is new about once a second.
KNOWN_SECONDS = 5.0
#: Seconds for one router to answer, and between two questions.
_ANSWER_SECONDS, _PAUSE_SECONDS = 1.0, 0.1


async def until_known(to_peer: PeerConnection, address: str, within: float) -> None:
    """Wait until all routers know the address of a receiver, for `within` seconds at most. Raises nothing.

    Returns at once where the peer is not a router, or does not say what others know.
    """
    connection, fields = to_peer.connection, {"peer": to_peer.connection.peer, "address": address}
    if not to_peer.scheme.routed:
        return
    try:
        async with asyncio.timeout(within), RouterManagement.opened(connection) as routers:
            if routers is not None:
                own, others = await routers.others(_ANSWER_SECONDS)
                await asyncio.gather(*(_until_known_at(routers, at, address, own) for at in others.values()))
    except TimeoutError:
        log.warning("some routers do not know an address yet, or do not say so", extra=fields)
    except MessagingError as error:
        log.debug("a router does not say which routers know an address", extra={**fields, "reason": str(error)})


async def _until_known_at(routers: RouterManagement, at: str, address: str, own: str) -> None:
    while True:
        # A router that has just started may not have a route for its answer yet.
        with suppress(TimeoutError, DeliveryFailure):
            if own in (await routers.read(address, _ANSWER_SECONDS, at=at)).get("remoteHostRouters", ()):
                return
        await asyncio.sleep(_PAUSE_SECONDS)


async def distribution(to_peer: PeerConnection, address: str, timeout: float) -> str | None:
    """Return how the peer, a router, delivers what is sent to an address: `multicast`, `balanced`, `closest`.

    None where the peer is not a router, or where it does not say it within `timeout` seconds.
    """
    connection, fields = to_peer.connection, {"peer": to_peer.connection.peer, "address": address}
    if not to_peer.scheme.routed:
        return None
    try:
        async with asyncio.timeout(timeout), RouterManagement.opened(connection) as routers:
            if routers is None:
                return None
            await to_peer.sender(address)  # a router knows an address while a link is attached to it
            return str((await routers.read(address, timeout)).get("distribution", "")) or None
    except (TimeoutError, MessagingError) as error:
        log.debug("a router does not say how it delivers to an address", extra={**fields, "reason": repr(error)})
        return None
