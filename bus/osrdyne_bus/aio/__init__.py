"""The bus for asyncio: `bus` is a connection that is kept up, `client` calls over it, and `server` serves. `pool` calls
the workers of a pool.

`joined` is what a bus has of one connection: `senders` keeps the links that messages leave over. `subscriptions` are
those that they come over, on whatever connection there is.
`threads` (beside this package) is the same for threads.
"""

from osrdyne_bus.aio.bus import AsyncBus
from osrdyne_bus.aio.client import AsyncBusClient
from osrdyne_bus.aio.pool import AsyncPoolClient
from osrdyne_bus.aio.server import AsyncBusListener, AsyncBusServer

__all__ = ["AsyncBus", "AsyncBusClient", "AsyncBusListener", "AsyncBusServer", "AsyncPoolClient"]
