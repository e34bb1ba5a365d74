"""The leader lock: only the connection that holds the exclusive `{pool}-leader` queue may act.

The queue ends with its connection, so lock and all changes end together. The leader also consumes the
queue, so that it notices a deletion. A standby tries again about every second, and takes over as soon as the broker
has noticed that the leader is gone.
"""

from __future__ import annotations

import asyncio
import logging
import random

from osrdyne_amqp import Connection
from osrdyne_amqp.errors import Locked
from osrdyne_protocol.names import PoolNames

log = logging.getLogger(__name__)

#: A message that cannot be delivered would end the connection, and with it the session.
_TAKES_NO_MESSAGE = {"x-max-length": 0, "x-overflow": "reject-publish"}
#: Average time between two tries of a standby.
_RETRY_SECONDS = 1.0


async def acquire(connection: Connection, names: PoolNames) -> asyncio.Event:
    """Wait until this connection holds the lock; the event returned is set when the lock is lost.

    Raises `BrokerError` when the connection is gone.
    """
    lost = asyncio.Event()
    waiting = False
    while True:
        channel = await connection.channel()
        try:
            await channel.declare_queue(names.leader_queue, durable=False, exclusive=True, arguments=_TAKES_NO_MESSAGE)
        except Locked:
            if not waiting:
                log.info("another daemon leads this pool; standing by")
            waiting = True
            await asyncio.sleep(_RETRY_SECONDS * random.uniform(0.75, 1.25))
        else:
            await channel.consume(names.leader_queue, lambda _: None, on_cancel=lost.set, no_ack=True)
            return lost
