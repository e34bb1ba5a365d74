"""What the broker holds at the end: unread replies, the poison inventory, requests that still wait."""

from __future__ import annotations

import asyncio

from faults.load import name_in
from faults.rig import VHOST, Rig
from osrdyne_amqp import Channel, Connection, Message
from osrdyne_protocol import headers
from testbed.pool import STATISTICS_INTERVAL
from testbed.waiting import until_in_thread

#: Seconds within which a queue is empty.
EMPTIED_SECONDS = 60.0


def drain(rig: Rig) -> None:
    """Empty the broker into the ledger. Daemons, workers and clients must have ended before.

    The parking queue is left as it is: no consumer is given what it holds.
    """
    # What they held is counted by then.
    rig.wait(STATISTICS_INTERVAL)
    asyncio.run(_drain(rig))


async def _drain(rig: Rig) -> None:
    # By our own library: pika ends its connection where a hostile peer has sent a time that Python does not have.
    names = rig.pool.names
    skipped = {names.activity_queue, names.events_stream, names.leader_queue, names.parked_queue}
    connection = await Connection.open(rig.broker.amqp_uri(vhost=VHOST), name="faults: drain")
    for queue in rig.pool.queues() - skipped:
        channel = await connection.channel()
        await _empty(rig, channel, queue)
        await channel.close()
    await connection.close()


async def _empty(rig: Rig, channel: Channel, queue: str) -> None:
    ledger, names = rig.ledger, rig.pool.names
    inventory = (names.poison_queue, names.unanswered_queue, names.waiting_queue)
    take = ledger.poison if queue in inventory else ledger.queue

    def enter(message: Message) -> None:
        if queue.startswith("reply-"):
            status = headers.text((message.properties.headers or {}).get(headers.X_STATUS)) or "none"
            ledger.reply(headers.text(message.properties.correlation_id), status)
        else:
            take(name_in(message.body))
        channel.ack(message.delivery_tag)

    await channel.consume(queue, enter, on_cancel=lambda: None)
    await until_in_thread(lambda: not rig.pool.depth(queue), within=EMPTIED_SECONDS)
