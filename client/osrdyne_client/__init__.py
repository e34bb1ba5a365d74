"""Call osrdyne's keyed workers, and write one.

`Client` (asyncio) and `SyncClient` (any threads) send requests to a pool: docs/client.md. `osrdyne_client.worker` is
the library for workers: docs/worker.md. `errors` has everything that is raised. Beneath: `core` over `slots` and
`link`, `worker_loop` over `worker_session`, and `amqp`, the only module that imports pika.
Nothing here starts or stops workers; that is the daemon.
"""

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
from osrdyne_client.sync_client import SyncClient

__all__ = [
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
    "SyncClient",
    "Undeliverable",
]
