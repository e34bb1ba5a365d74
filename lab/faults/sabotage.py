"""A loss on purpose: a program takes a confirmed request out of its queue in silence."""

from __future__ import annotations

from contextlib import closing
from random import Random

import pika

from faults import load
from faults.rig import VHOST, Rig
from testbed.waiting import until


def theft(rig: Rig, random: Random) -> str:
    """Steal from the key whose worker never starts: its requests wait."""
    queue = rig.pool.names.request_queue(load.DEAD)
    with closing(pika.BlockingConnection(pika.URLParameters(rig.broker.amqp_uri(vhost=VHOST)))) as connection:
        channel = connection.channel()

        def stolen() -> str | None:
            try:
                method, _, body = channel.basic_get(queue, auto_ack=False)
            except pika.exceptions.ChannelClosedByBroker:
                raise AssertionError(f"{queue} is not there") from None
            if method is None:
                return None
            channel.basic_ack(method.delivery_tag)
            return load.name_in(body)

        rig.until_true(lambda: bool(rig.pool.depth(queue)), what=f"a request in {queue}")
        name = until(stolen, what="the theft")
    return f"{name} out of {queue}"
