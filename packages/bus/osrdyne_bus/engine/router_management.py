"""What the routers of a mesh say of themselves, at the address `$management` of each.

The requests are those of skupper-router and qpid-dispatch, by AMQP's working draft for management: READ of an address,
and QUERY of the routers that one knows.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any

from osrdyne_bus.credit import CreditWindow
from osrdyne_bus.engine.connection import BusConnection
from osrdyne_bus.engine.senders import SendLink
from osrdyne_bus.engine.subscriptions import IncomingMessage
from osrdyne_bus.errors import MessagingError, SendTimedOut
from osrdyne_bus.messages.envelopes import Envelope

#: Credit for answers.
MOST_ANSWERS = 250
#: By a word of the product's name: what the types of its entities begin with, and what stands before an address.
_PRODUCTS = {"skupper-router": ("io.skupper.router", "M"), "router": ("org.apache.qpid.dispatch", "M0")}
_OWN = "$management"
#: The body of a request that needs none.
NOTHING: Mapping[str, Any] = MappingProxyType({})


class RouterManagement:
    """Asks the routers of a mesh, by way of one of them. `opened` makes one."""

    def __init__(self, connection: BusConnection, words: tuple[str, str]) -> None:
        self._connection = connection
        self._types, self._before = words
        self._numbers = itertools.count(1)
        self._answers: dict[str, asyncio.Future[Envelope]] = {}
        self._reply_to = ""
        #: By address, that of the management of each router.
        self._links: dict[str, SendLink] = {}

    @classmethod
    @asynccontextmanager
    async def opened(cls, connection: BusConnection) -> AsyncIterator[RouterManagement | None]:
        """Have an address for answers, and drop all links in the end. None where the peer is not such a router.

        Raises LinkRefused and PeerLost.
        """
        product = str(connection.properties.get("product", "")).lower()
        words = next((words for word, words in _PRODUCTS.items() if word in product), None)
        if words is None:
            yield None
            return
        made = cls(connection, words)
        answers = await connection.subscribe(None, CreditWindow(MOST_ANSWERS), made._answered, any_body=True)
        made._reply_to = answers.address
        try:
            yield made
        finally:
            for link in (answers, *made._links.values()):
                link.close()

    async def others(self, timeout: float) -> tuple[str, dict[str, str]]:
        """Return the name of the peer, and where the other routers are that it knows, by name. Raises as `read`."""
        asked = {"operation": "QUERY", "entityType": f"{self._types}.router.node"}
        # All that a router says of a large mesh is more than a message of ours may hold.
        answer = await self._ask(_OWN, asked, timeout, {"attributeNames": ["id", "nextHop", "address"]})
        names, rows = answer.get("attributeNames", ()), answer.get("results", ())
        nodes = [{str(name): str(value) for name, value in zip(names, row, strict=False)} for row in rows]
        own = next((node.get("id", "") for node in nodes if node.get("nextHop") == "(self)"), "")
        return own, {node["id"]: node["address"] for node in nodes if node.get("id", own) != own and "address" in node}

    async def read(self, address: str, timeout: float, *, at: str = "") -> Mapping[str, Any]:
        """Return what a router knows of an address, the peer or the one `at` an address; empty where that is nothing.

        Raises TimeoutError where there is no answer within `timeout` seconds, DeliveryFailure where it cannot be
        reached, and another MessagingError where it does not say it.
        """
        asked = {"operation": "READ", "type": f"{self._types}.router.address", "identity": f"{self._before}{address}"}
        return await self._ask(f"{at}/{_OWN}" if at else _OWN, asked, timeout)

    async def _ask(
        self, to: str, properties: Mapping[str, str], timeout: float, body: Mapping[str, Any] = NOTHING
    ) -> Mapping[str, Any]:
        name = str(next(self._numbers))
        waiting = self._answers[name] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout):
                if (link := self._links.get(to)) is None:
                    link = self._links[to] = await self._connection.sender(to)
                request = Envelope(correlation_id=name, reply_to=self._reply_to, headers=properties)
                await link.send(request, timeout, value=dict(body))
                answer = await waiting
        except SendTimedOut as error:
            raise TimeoutError(str(error)) from error
        finally:
            del self._answers[name]
        status = answer.headers.get("statusCode")
        if status == 404:
            return {}
        if status != 200 or not isinstance(answer.value, Mapping):
            raise MessagingError(f"{to!r} answered {properties['operation']} with {status}")
        return {str(key): value for key, value in answer.value.items()}

    def _answered(self, incoming: IncomingMessage) -> None:
        incoming.accept()
        waiting = self._answers.get(str(incoming.envelope.correlation_id))
        if waiting is not None and not waiting.done():
            waiting.set_result(incoming.envelope)
