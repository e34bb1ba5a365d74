"""What a real broker reports of dead letters that have left their queue and have not arrived."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from urllib.parse import quote

import pytest

from osrdyne.broker.management_api import ManagementApi
from osrdyne.errors import ManagementError
from osrdyne.state.values import QueueTotals
from osrdyne_amqp import Connection, Properties
from osrdyne_pool.topology import request_queue_arguments
from testbed.pool import Pool
from testbed.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.both_versions


async def test_a_dead_letter_that_has_not_arrived_is_distinguished_from_an_empty_queue(
    make_pool: Callable[..., Pool],
) -> None:
    pool = make_pool()
    # Given that dead letters find no queue, so that the broker keeps them where they died
    pool.broker.management.delete("queues", pool.vhost, pool.names.dead_letter_queue)
    queue = pool.names.request_queue("42")
    connection = await Connection.open(pool.broker.amqp_uri(vhost=pool.vhost), name="test")
    channel = await connection.channel(confirm=True)
    await channel.declare_queue(queue, arguments=request_queue_arguments("42"))
    await channel.publish("", queue, b"", Properties(delivery_mode=2, expiration="10"))

    user = pool.users.daemon
    address = pool.broker.management_url.replace("://", f"://{quote(user)}:{quote(pool.passwords[user])}@")
    api = ManagementApi(address, pool.vhost)
    seen: QueueTotals | None = None
    async with asyncio.timeout(PATIENCE_SECONDS):
        while seen is None or not seen.dead_lettering:
            await asyncio.sleep(0.1)
            # At first there are no statistics of a new queue.
            with contextlib.suppress(ManagementError):
                seen = await api.totals(queue)

    # Then neither a look nor the usual totals show it
    assert (await channel.declare_queue(queue, passive=True)).ready == 0
    assert seen == QueueTotals(ready=0, unacknowledged=0, consumers=0, bindings=0, dead_lettering=1)
    await connection.close()
