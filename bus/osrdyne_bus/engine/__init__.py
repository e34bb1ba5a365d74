"""AMQP 1.0 by proton, on asyncio: the only package that imports proton.

`connection` is one to a peer, `links` are its senders and subscriptions, and `messages` encodes what they carry.
`rabbitmq_nodes` declares what RabbitMQ does not make when a link is attached.
"""

try:
    import proton  # noqa: F401 - said here what is missing
except ImportError as error:
    raise ImportError(
        "osrdyne_bus.engine needs proton: install osrdyne-bus[proton], which compiles C (docs/decisions/0030)"
    ) from error

from osrdyne_bus.engine.connection import MOST_SESSIONS, BusConnection, Login
from osrdyne_bus.engine.links import Incoming, SendLink, Subscription

__all__ = ["BusConnection", "Incoming", "Login", "MOST_SESSIONS", "SendLink", "Subscription"]
