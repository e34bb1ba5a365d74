"""Whatever its key, a group that a driver started answers for that key and for no other."""

from __future__ import annotations

from collections.abc import Iterator

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from osrdyne.drivers.subprocess.driver import SubprocessDriver, SubprocessTemplate
from osrdyne_protocol.names import PoolNames
from tests.conftest import Vhost
from tests.drivers.subjects.subprocess import SubprocessSubject
from tests.drivers.test_minimal_worker import CLASSIC, WORKER, take
from tests.hard_keys import KEYS

POOL = PoolNames("echo")


@pytest.fixture
def channel(vhost: Vhost) -> Iterator[BlockingChannel]:
    """A pool's exchange and the request queues of all keys."""
    with pika.BlockingConnection(pika.URLParameters(vhost.amqp_uri())) as connection:
        channel = connection.channel()
        channel.exchange_declare(POOL.activity_exchange, "fanout", durable=True)
        for key in KEYS:
            channel.queue_declare(POOL.request_queue(key), durable=True)
        channel.queue_declare("replies", durable=True, arguments=CLASSIC)
        yield channel


def answers(channel: BlockingChannel) -> dict[str, tuple[bytes, str]]:
    """Asks each key once; returns by key the answer's body and who gave it."""
    for key in KEYS:
        properties = pika.BasicProperties(reply_to="replies", correlation_id=key)
        channel.basic_publish("", POOL.request_queue(key), b"body", properties)
    found = {}
    for _ in KEYS:
        properties, body = take(channel, "replies")
        found[str(properties.correlation_id)] = (body, str(properties.headers["x-worker-id"]))
    return found


async def test_every_key_is_answered_by_its_own_worker_also_after_the_daemon_restarted(
    vhost: Vhost, channel: BlockingChannel, machine: SubprocessSubject
) -> None:
    def daemon() -> SubprocessDriver:
        return machine.driver_of(SubprocessTemplate(WORKER), uri=vhost.amqp_uri())

    # Given one group a key
    first = daemon()
    for key in KEYS:
        await first.start(key)
    before = answers(channel)
    assert {key: body for key, (body, _) in before.items()} == {key: f"{key}|body".encode() for key in KEYS}
    assert len({worker for _, worker in before.values()}) == len(KEYS)
    # When the daemon is followed by another
    await first.close()
    second = daemon()
    for key in KEYS:
        await second.start(key)
    # Then the same workers answer
    assert answers(channel) == before
