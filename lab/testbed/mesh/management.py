"""What a router of the mesh says at `$management`: the routers that it knows, and what it knows of an address.

The requests are those of qpid-dispatch, by AMQP's working draft for management: operation and type in the properties.
"""

from __future__ import annotations

from typing import Any, Protocol

import proton
from proton import Delivery

from testbed.mesh.lanes import UnsettledMessage
from testbed.mesh.routing import RouterState

ADDRESS = "$management"
#: How the address of a router begins.
ROUTERS = "amqp:/_topo/0/"
_TYPES = "org.apache.qpid.dispatch.router"


class Owner(Protocol):
    """What it asks its router."""

    name: str
    states: dict[str, RouterState]

    def subscribers(self, address: str) -> int: ...
    def distribution(self, address: str) -> str | None: ...
    def send(self, address: str, data: bytes) -> None: ...


class Management:
    """A way that ends in the router itself."""

    #: Nothing stays here.
    held = 0

    def __init__(self, router: Owner) -> None:
        self._router = router

    def take(self, message: UnsettledMessage) -> None:
        request = proton.Message()
        request.decode(message.data)
        message.settled(Delivery.ACCEPTED)
        asked = request.properties or {}
        status, body = self._answer(str(asked.get("operation")), asked)
        reply = proton.Message(body=body, correlation_id=request.correlation_id, properties={"statusCode": status})
        self._router.send(str(request.reply_to), bytes(reply.encode()))

    def _answer(self, operation: str, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if operation == "QUERY" and asked.get("entityType") == f"{_TYPES}.node":
            return 200, self._nodes()
        if operation == "READ" and asked.get("type") == f"{_TYPES}.address":
            address = str(asked.get("identity")).removeprefix("M0")
            if (distribution := self._router.distribution(address)) is not None:
                return 200, {
                    "distribution": distribution,
                    "subscriberCount": self._router.subscribers(address),
                    "remoteHostRouters": self._having(address),
                }
            return 404, {}
        return 501, {}

    def _nodes(self) -> dict[str, Any]:
        own = self._router.name
        rows = [[name, "(self)" if name == own else None, f"{ROUTERS}{name}"] for name in sorted(self._router.states)]
        return {"attributeNames": ["id", "nextHop", "address"], "results": rows}

    def _having(self, address: str) -> list[str]:
        states = self._router.states
        return sorted(name for name in states if name != self._router.name and address in states[name].addresses)


def destination(address: str) -> tuple[str | None, str]:
    """Return the router that an address names, if it names one, and the rest of it."""
    if not address.startswith(ROUTERS):
        return None, address
    router, _, rest = address.removeprefix(ROUTERS).partition("/")
    return router, rest
