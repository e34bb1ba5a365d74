"""Calls to workers that can only poll, from any node, over Redis.

    async with Relay(settings) as relay:
        response = await relay.queue_and_wait("maps/LAX", b"question")

    async with Relay(settings) as relay:
        request = await relay.dequeue("maps/LAX")
        await relay.apply_response(request.id, b"answer")

`relay` is a node, over what `node` holds for its calls (`call`) and requests (`serving`). `redis` has every change of
what they share, and the connections for it. `messages` is what callers and workers exchange, `streams` what is too
large for that, and `checking` looks at what callers give before anything is done for it. `time_rules` is pure, like
`checking` and `messages`. `settings` describe a node, and `errors` has what is raised.

Over HTTPS: `http` is a node to which others connect, `worker` serves endpoints and `client` calls them there. `wire` is
what goes between, and `keepalive` finds out that the other side is gone. `commands` are those of `osrdyne relay`.
`driver` is one of the daemon. Each is an extra. Docs: docs/howto/relay.md.
"""

from osrdyne_relay.call import Call, Cancellation
from osrdyne_relay.errors import (
    AccessDenied,
    CallerGone,
    CallFailed,
    CallRefused,
    CallTimedOut,
    Cancelled,
    DataLost,
    InvalidCall,
    NodeFailed,
    NodeLost,
    NodesAway,
    NodeStopping,
    NotCollected,
    PeerGone,
    RedisAway,
    RedisRefused,
    RelayClosed,
    RelayError,
    Stage,
    StreamLost,
    TooLarge,
    TooMany,
    UnknownRequest,
    UnreadableRecord,
    UnreadableResponse,
)
from osrdyne_relay.messages import Answer, Request, Response
from osrdyne_relay.relay import Relay
from osrdyne_relay.serving import Collected
from osrdyne_relay.settings import RedisSettings, RelaySettings, S3Settings, ServeSettings, StreamSettings, Timings
from osrdyne_relay.streams import DataStreams, SharedDirectory, StoredStream

__all__ = [
    "AccessDenied",
    "Answer",
    "Call",
    "CallFailed",
    "CallRefused",
    "CallTimedOut",
    "CallerGone",
    "Cancellation",
    "Cancelled",
    "Collected",
    "DataLost",
    "DataStreams",
    "InvalidCall",
    "NodeFailed",
    "NodeLost",
    "NodeStopping",
    "NodesAway",
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
    "ServeSettings",
    "SharedDirectory",
    "Stage",
    "StoredStream",
    "StreamLost",
    "StreamSettings",
    "Timings",
    "TooLarge",
    "TooMany",
    "UnknownRequest",
    "UnreadableRecord",
    "UnreadableResponse",
]
