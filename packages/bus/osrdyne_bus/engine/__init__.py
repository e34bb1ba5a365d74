"""AMQP 1.0 by proton, on asyncio: the only package that imports proton.

`connection` is one to a peer, which begins with a `handshake`, and `transport` moves its bytes. Its `senders` and
`subscriptions` are `links`, in its `sessions`. `messages` encodes what they carry. `rabbitmq_nodes` declares what
RabbitMQ does not make for a link, and `router_management` asks routers what they know.
"""

try:
    import proton  # noqa: F401 - said here what is missing
except ImportError as error:
    raise ImportError(
        "osrdyne_bus.engine needs proton: install osrdyne-bus[proton], which compiles C (docs/decisions/0030)"
    ) from error

from osrdyne_bus.engine.connection import BusConnection
from osrdyne_bus.engine.senders import SendLink
from osrdyne_bus.engine.sessions import MOST_SESSIONS
from osrdyne_bus.engine.subscriptions import IncomingMessage, Subscription
from osrdyne_bus.logins import Login

__all__ = ["BusConnection", "IncomingMessage", "Login", "MOST_SESSIONS", "SendLink", "Subscription"]
