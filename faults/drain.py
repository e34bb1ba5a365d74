"""What the broker holds at the end: unread replies, the poison inventory, requests that still wait."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pika

from faults.ledger import Ledger
from faults.load import name_in
from faults.rig import VHOST, Rig
from osrdyne_protocol import headers


def drain(rig: Rig) -> None:
    """Empty the broker into the ledger. Daemons, workers and clients must have ended before."""
    names, ledger = rig.pool.names, rig.ledger
    skipped = {names.activity_queue, names.events_stream, names.leader_queue}
    inventory = (names.poison_queue, names.unanswered_queue, names.waiting_queue)
    uri = rig.broker.amqp_uri(vhost=VHOST)
    with closing(pika.BlockingConnection(pika.URLParameters(uri))) as connection:
        channel = connection.channel()

        def empty(queue: str) -> bool:
            take = ledger.poison if queue in inventory else ledger.queue
            while True:
                method, properties, body = channel.basic_get(queue, auto_ack=True)
                if method is None:
                    break
                if queue.startswith("reply-"):
                    _reply(ledger, properties)
                else:
                    take(name_in(body))
            return not rig.pool.depth(queue)

        for queue in rig.pool.queues() - skipped:
            # What a killed consumer held is ready again a moment later.
            rig.until_true(_emptied(empty, queue), what=f"the end of {queue}")


def _emptied(empty: Callable[[str], bool], queue: str) -> Callable[[], bool]:
    return lambda: empty(queue)


def _reply(ledger: Ledger, properties: pika.BasicProperties) -> None:
    status = headers.text((properties.headers or {}).get(headers.X_STATUS)) or "none"
    ledger.reply(properties.correlation_id, status)
