"""A worker of under 60 lines without our library is a full citizen: the protocol is the product."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from testbed.waiting import until
from tests.conftest import Vhost

WORKER = Path(__file__).parents[2] / "examples" / "plain_pika_worker.py"
KEY, QUEUE, ACTIVITY, REPLIES = "a\nb é", "pool-req-~x", "pool-activity-xchg", f"reply-test-{0:032x}"


class Peer:
    """A worker process, and what its daemon and its client see of it."""

    def __init__(self, uri: str) -> None:
        self.connection = pika.BlockingConnection(pika.URLParameters(uri))
        self.channel = self.connection.channel()
        self.channel.queue_declare(QUEUE, durable=True, arguments={"x-queue-type": "quorum"})
        self.channel.exchange_declare(ACTIVITY, "fanout", durable=True)
        self.channel.queue_declare(REPLIES, durable=True, arguments={"x-queue-type": "classic"})
        self.channel.queue_declare("events", durable=True)
        self.channel.queue_bind("events", ACTIVITY)
        ours = {"ID": "w", "KEY": KEY, "POOL": "pool", "REQUESTS_QUEUE": QUEUE, "ACTIVITY_EXCHANGE": ACTIVITY}
        environ = {f"WORKER_{name}": value for name, value in (ours | {"AMQP_URI": uri}).items()}
        self.process = subprocess.Popen([sys.executable, str(WORKER)], env=os.environ | environ, cwd="/")

    def ask(self, body: bytes, **properties: Any) -> None:
        self.channel.basic_publish("", QUEUE, body, pika.BasicProperties(**properties))

    def take(self, queue: str) -> tuple[Any, pika.BasicProperties, bytes]:
        """The next message of a queue, which comes soon."""
        found: tuple[Any, pika.BasicProperties, bytes] | None = None

        def arrived() -> bool:
            nonlocal found
            found = self._next(queue)
            return found is not None

        self.until(arrived)
        assert found is not None
        return found

    def until(self, look: Callable[[], Any]) -> Any:
        """Wait for a condition, and see to the connection meanwhile."""
        return until(lambda: look() or self.connection.process_data_events(0))

    def count(self, queue: str) -> int:
        return int(self.channel.queue_declare(queue, passive=True).method.message_count)

    def _next(self, queue: str) -> tuple[Any, Any, Any] | None:
        found = self.channel.basic_get(queue, auto_ack=True)
        return found if found[0] else None


@pytest.fixture
def peer(vhost: Vhost) -> Iterator[Peer]:
    peer = Peer(vhost.amqp_uri())
    yield peer
    peer.process.kill()
    peer.process.wait()
    peer.connection.close()


def test_a_worker_of_plain_pika_follows_the_protocol(peer: Peer) -> None:
    # Given a worker that has said that it starts
    method, properties, _ = peer.take("events")
    assert (method.routing_key, properties.headers) == (KEY, {"x-event": "started"})
    # Without a time the pipeline could make nothing of it
    assert abs(time.time() - properties.timestamp) < 60

    # When it gets a request without reply-to, one whose caller is gone, and one of a caller who waits
    peer.ask(b"1")
    peer.ask(b"2", reply_to=f"reply-gone-{0:032x}", correlation_id="2")
    peer.ask(b"3", reply_to=REPLIES, correlation_id="3")

    # Then the last is answered with its correlation id and a status, and all are settled and reported
    _, properties, body = peer.take(REPLIES)
    assert (properties.correlation_id, properties.headers) == ("3", {"x-status": "ok"})
    assert body == KEY.encode() + b": 3"
    for _ in range(3):
        assert peer.take("events")[1].headers == {"x-event": "request-received"}
    assert peer.count(QUEUE) == 0


def test_on_sigterm_what_it_took_is_answered_and_the_rest_stays_queued(peer: Peer) -> None:
    # Given a worker in the middle of many requests
    for number in range(2000):
        peer.ask(b"", reply_to=REPLIES, correlation_id=str(number))
    peer.until(lambda: peer.count(REPLIES) > 20)

    # When it is asked to stop
    peer.process.send_signal(signal.SIGTERM)

    # Then it ends well, and every request is answered once or still there
    assert peer.process.wait(20) == 0
    answered, queued = peer.count(REPLIES), peer.until(lambda: peer.count(QUEUE))
    assert 20 < answered < 2000
    peer.until(lambda: peer.count(REPLIES) + peer.count(QUEUE) == 2000)
    assert queued


def test_a_request_queue_that_is_gone_ends_it_with_an_error(peer: Peer) -> None:
    peer.ask(b"1", reply_to=REPLIES, correlation_id="1")
    peer.take(REPLIES)

    peer.channel.queue_delete(QUEUE)

    assert peer.process.wait(20) != 0


def test_the_example_stays_under_sixty_lines() -> None:
    assert len(WORKER.read_text().splitlines()) < 60
