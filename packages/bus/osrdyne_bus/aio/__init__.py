"""The bus for asyncio: `bus` sends and receives messages, `client` calls over it, and `serving` answers.

`sending` is how a message leaves, whatever becomes of the connection, and `calls` wait for their replies.

`kept_connection` is the connection of a bus, one after the other, and `peer_connection` is each of them: `senders`
keeps the links that messages leave over. `subscriptions` are those that they come over, on any connection there is.
`mesh` is what routers are asked. `threads` (beside this package) is the same for threads.
"""

from osrdyne_bus.aio.bus import AsyncBus
from osrdyne_bus.aio.client import AsyncBusClient
from osrdyne_bus.aio.serving.listener import AsyncBusListener
from osrdyne_bus.aio.serving.server import AsyncBusServer

__all__ = ["AsyncBus", "AsyncBusClient", "AsyncBusListener", "AsyncBusServer"]
