"""A client names where its reply goes. Workers and the daemon may write into any queue, so they do not go anywhere."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pika
import pytest

from testbed.foreign_client import ForeignClient
from testbed.pool import DaemonProcess, Pool
from testbed.waiting import until
from testbed.workers import LIBRARY

pytestmark = pytest.mark.both_versions

MakePool = Callable[..., Pool]
MakeDaemon = Callable[..., DaemonProcess]
MakeClient = Callable[[Pool], ForeignClient]

EXAMPLE = [sys.executable, str(Path(__file__).parents[2] / "examples" / "plain_pika_worker.py")]
#: RabbitMQ 4.0 closes the connection that publishes to it: it is not the address of a process.
BROKEN = "amq.rabbitmq.reply-to.g1h2AA.x"


@pytest.mark.parametrize("worker", [LIBRARY, EXAMPLE], ids=["library", "plain pika"])
def test_a_client_of_a_pool_reaches_no_queue_of_another_pool_by_its_reply_to(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient, worker: list[str]
) -> None:
    # Given two pools in one virtual host, of which one has a group whose queue is there
    pool, other = make_pool(name="core"), make_pool(name="other")
    make_daemon(pool, worker=worker)
    client, names = make_client(pool), other.names
    connection = pika.BlockingConnection(pika.URLParameters(other.broker.amqp_uri(vhost=other.vhost)))
    channel = connection.channel()
    theirs = [names.request_queue("42"), *names.counted, names.activity_queue]
    channel.queue_declare(theirs[0], durable=True, arguments={"x-queue-type": "quorum"})
    assert client.ask("warm").status == "ok"

    # When a client of the one names queues of the other: its worker would answer, or the daemon
    sent = [client.send(key, b"body", reply_to=queue) for queue in theirs for key in ("warm", "cold", "a\0b")]

    # Then each request is kept, nothing was written there, and the pool serves
    until(lambda: pool.depth(pool.names.unanswered_queue) == len(sent), what="the kept requests")
    assert client.ask("warm").status == "ok"
    assert [channel.queue_declare(queue, passive=True).method.message_count for queue in theirs] == [0] * len(theirs)
    reasons = [channel.basic_get(pool.names.unanswered_queue)[1].headers["x-osrdyne-poison-reason"] for _ in sent]
    assert sorted(reasons) == ["invalid_key"] * len(theirs) + ["rejected"] * 2 * len(theirs)
    connection.close()


def test_a_broken_address_of_direct_reply_to_ends_no_connection_of_the_daemon_or_of_a_worker(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool()
    daemon = make_daemon(pool, worker=LIBRARY)
    client = make_client(pool)
    assert client.ask("warm").status == "ok"

    for key in ("warm", "cold", "a\0b"):
        client.send(key, b"", reply_to=BROKEN)

    until(lambda: pool.depth(pool.names.unanswered_queue) == 3, what="the kept requests")
    assert client.ask("warm").status == "ok"
    assert daemon.sessions_ended() == 0
    until(lambda: not pool.depth(pool.names.dead_letter_queue), what="the last settlement")
