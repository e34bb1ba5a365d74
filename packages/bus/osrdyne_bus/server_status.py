"""What each server answers to `ping`, a method that all have. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from osrdyne_bus.endpoints import Endpoint
from osrdyne_protocol import foreign_json

#: Namespace and version of the methods that all servers have. No other endpoint may have this namespace.
NAMESPACE = "osrdyne"
VERSION = "1.0"
PING = "ping"


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """What a server says of itself."""

    server: str
    #: Where it runs: the machine's name, and the id of its process.
    host: str
    process: int
    #: `NAMESPACE VERSION: METHOD, METHOD` of each endpoint.
    endpoints: tuple[str, ...]
    #: Requests that wait here for one of its handlers, and handlers that run.
    waiting: int
    running: int
    #: How many handlers may run at once.
    concurrency: int
    #: Replies of this server that could not be sent.
    lost_replies: int

    def to_json(self) -> bytes:
        """Return it as the body of an answer."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, body: bytes) -> Self:
        """Read the body of an answer. Fields of a later version are left out. Raises ValueError."""
        try:
            read: dict[str, Any] = foreign_json.read(body)
            given = {name: read[name] for name in cls.__slots__}
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"this is not an answer of a server to {PING!r}: {error!r}") from None
        texts = given["endpoints"]
        right = isinstance(texts, list) and all(
            isinstance(text, str) for text in (given["server"], given["host"], *texts)
        )
        if not right or not all(type(given[name]) is int for name in _NUMBERS):
            raise ValueError(f"this is not an answer of a server to {PING!r}: a field has the wrong type")
        return cls(**{**given, "endpoints": tuple(texts)})


_NUMBERS = ("process", "waiting", "running", "concurrency", "lost_replies")


def described(endpoints: Sequence[Endpoint]) -> tuple[str, ...]:
    """Return endpoints as a status has them."""
    return tuple(
        f"{endpoint.namespace or '-'} {endpoint.version}: {', '.join(sorted(endpoint.methods))}"
        for endpoint in endpoints
    )
