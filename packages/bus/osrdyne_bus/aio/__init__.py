"""The bus for asyncio: `bus` sends and receives messages, `client` calls over it.

A `server` serves requests, and a `listener` hears notifications: `consumer` is what both have in common. `replies`
are those of a server on their way.

`kept_connection` is the connection of a bus, one after the other, and `peer_connection` is each of them: `senders`
keeps the links that messages leave over. `subscriptions` are those that they come over, on any connection there is.
`mesh` is what routers are asked.
Plain handlers run where those of pools do, in `osrdyne_calls.runners`. `threads` (beside this package) is the same
for threads.
"""

from osrdyne_bus.aio.bus import AsyncBus
from osrdyne_bus.aio.client import AsyncBusClient
from osrdyne_bus.aio.listener import AsyncBusListener
from osrdyne_bus.aio.server import AsyncBusServer

__all__ = ["AsyncBus", "AsyncBusClient", "AsyncBusListener", "AsyncBusServer"]
