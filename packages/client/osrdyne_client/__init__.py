"""Call the workers of a pool.

`client` (any number of threads) and `async_client` (asyncio) send requests: docs/howto/client.md. `base` has their
options, `errors` all that they raise, `replies` what comes back. Beneath both is `dispatcher`: it holds the `calls` in
flight in `slots`, and sends them over a `connection`. This package is for callers: workers are in `osrdyne_worker`,
AMQP is in `osrdyne_amqp`.
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
