"""Call the workers of a pool.

`Client` (any number of threads) and `AsyncClient` (asyncio) send requests: docs/client.md. `errors` has all that they
raise. Beneath both is `dispatcher`: it holds the `calls` in flight in `slots`, and sends them over a `connection`.
Here belongs what a caller needs, and nothing of a worker (`osrdyne_worker`) or of AMQP itself (`osrdyne_amqp`).
"""

from osrdyne_client.async_client import AsyncClient
from osrdyne_client.client import Client
from osrdyne_client.errors import (
    BodyTooLarge,
    BrokerError,
    CallError,
    CallTimeout,
    ClientClosed,
    NoFreeSlot,
    OsrdyneError,
    RemoteError,
    Undeliverable,
)
from osrdyne_client.replies import Reply

__all__ = [
    "AsyncClient",
    "BodyTooLarge",
    "BrokerError",
    "CallError",
    "CallTimeout",
    "Client",
    "ClientClosed",
    "NoFreeSlot",
    "OsrdyneError",
    "RemoteError",
    "Reply",
    "Undeliverable",
]
