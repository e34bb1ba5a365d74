"""Call the workers of a pool.

`client` (any number of threads) and `async_client` (asyncio) send requests: docs/howto/client.md. `base` has their
options, `errors` all that they raise. Beneath both is `dispatcher`: it holds the `calls` in flight in slots, sends them
over a `connection`, and reads what comes back by `replies`. This package is for callers: workers are in
`osrdyne_worker`, AMQP is in `osrdyne_amqp`, and what all kinds of calls share in `osrdyne_calls`.
"""

from osrdyne_calls.replies import Reply
from osrdyne_client.async_client import AsyncClient
from osrdyne_client.client import Client
from osrdyne_client.errors import (
    AccessRefused,
    BodyTooLarge,
    BrokerError,
    BrokerUnreachable,
    CallError,
    CallTimeout,
    ClientClosed,
    DeliveryLimit,
    Expired,
    InvalidKey,
    InvalidRequest,
    InvalidTimeout,
    InvalidUri,
    KeyRefused,
    MaxLength,
    Nacked,
    NoFreeSlot,
    OsrdyneError,
    OtherProcess,
    Rejected,
    RemoteError,
    ReplyAddressLost,
    StartFailed,
    Throttled,
    Unconfirmed,
    Undeliverable,
    Unencodable,
    Unroutable,
    WorkerFailed,
)

__all__ = [
    "AccessRefused",
    "AsyncClient",
    "BodyTooLarge",
    "BrokerError",
    "BrokerUnreachable",
    "CallError",
    "CallTimeout",
    "Client",
    "ClientClosed",
    "DeliveryLimit",
    "Expired",
    "InvalidKey",
    "InvalidRequest",
    "InvalidTimeout",
    "InvalidUri",
    "KeyRefused",
    "MaxLength",
    "Nacked",
    "NoFreeSlot",
    "OsrdyneError",
    "OtherProcess",
    "Rejected",
    "RemoteError",
    "Reply",
    "ReplyAddressLost",
    "StartFailed",
    "Throttled",
    "Unconfirmed",
    "Undeliverable",
    "Unencodable",
    "Unroutable",
    "WorkerFailed",
]
