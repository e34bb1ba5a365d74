"""Calls to workers that can only poll, from any node, over Redis.

    async with Relay(settings) as relay:
        response = await relay.queue_and_wait("maps/LAX", b"question")

    async with Relay(settings) as relay:
        request = await relay.dequeue("maps/LAX")
        await relay.apply_response(request.id, b"answer")

`relay` is a node, over what `node` holds for its calls (`caller`) and requests (`serving`). `transactions` has every
change of Redis, `names` its keys and `records` what is in them. `retrying` executes transactions, over the `port` that
`redis_client` implements on connections of `redis_wire`, and `pulses` receives. `messages` is what callers and workers
exchange, `streams` what is too large for that. `time_rules` is pure, like `messages`, `names`, `records` and
`transactions`. `settings` describe a node, and `errors` has what is raised. Docs: docs/relay.md.
"""

from osrdyne_relay.caller import Call, Cancellation
from osrdyne_relay.errors import (
    CallerGone,
    CallFailed,
    CallTimedOut,
    Cancelled,
    DataLost,
    InvalidCall,
    NotCollected,
    PeerGone,
    RedisAway,
    RedisRefused,
    RelayClosed,
    RelayError,
    Stage,
    StreamLost,
    TooLarge,
    UnknownRequest,
    UnreadableRecord,
    UnreadableResponse,
)
from osrdyne_relay.messages import Answer, Request, Response
from osrdyne_relay.relay import Relay
from osrdyne_relay.serving import Collected
from osrdyne_relay.settings import RedisSettings, RelaySettings, S3Settings, StreamSettings, Timings
from osrdyne_relay.streams import DataStreams, SharedDirectory, StoredStream

__all__ = [
    "Answer",
    "Call",
    "CallFailed",
    "CallTimedOut",
    "CallerGone",
    "Cancellation",
    "Cancelled",
    "Collected",
    "DataLost",
    "DataStreams",
    "InvalidCall",
    "NotCollected",
    "PeerGone",
    "RedisAway",
    "RedisRefused",
    "RedisSettings",
    "Relay",
    "RelayClosed",
    "RelayError",
    "RelaySettings",
    "Request",
    "Response",
    "S3Settings",
    "SharedDirectory",
    "Stage",
    "StoredStream",
    "StreamLost",
    "StreamSettings",
    "Timings",
    "TooLarge",
    "UnknownRequest",
    "UnreadableRecord",
    "UnreadableResponse",
]
