"""An exchange that is deleted under a running daemon: it says which, and goes on once it is declared again."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.exceptions import AMQPError

from testbed.broker import Broker
from testbed.pool import DaemonProcess, Pool
from testbed.waiting import until
from testbed.workers import LIBRARY

pytestmark = pytest.mark.both_versions

KEYS = [f"key-{number}" for number in range(4)]
#: The daemon looks for what is missing as often as this, in seconds; once a minute by default.
LOOK: dict[str, Any] = {"intervals": {"topology_check": 0.5}}

MakePool = Callable[..., Pool]
MakeDaemon = Callable[..., DaemonProcess]


class Caller:
    """Publishes with confirms and keeps what was confirmed; its replies wait in a queue of its own."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._connection = pika.BlockingConnection(pika.URLParameters(pool.client_uri))
        self._replies = f"reply-{pool.users.client}-{secrets.token_hex(16)}"
        self._inbox = self._connection.channel()
        self._inbox.queue_declare(self._replies, durable=True, arguments={"x-queue-type": "classic"})
        self.confirmed: set[str] = set()
        self.answers: dict[str, str] = {}

    def publish(self, *keys: str, body: bytes = b"x") -> None:
        """Publish a request to each key; what the broker refuses or returns is none."""
        channel = self._connection.channel()
        channel.confirm_delivery()
        for key in keys:
            name = f"{len(self.confirmed)}-{key}"
            properties = pika.BasicProperties(delivery_mode=2, correlation_id=name, reply_to=self._replies)
            try:
                channel.basic_publish(self._pool.names.request_exchange, key, body, properties, mandatory=True)
            except AMQPError:
                return
            self.confirmed.add(name)

    def all_answered(self) -> bool:
        """Take in the replies that are there."""
        while (found := self._inbox.basic_get(self._replies, auto_ack=True))[0]:
            self.answers[found[1].correlation_id] = found[1].headers["x-status"]
        return self.confirmed <= self.answers.keys()

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def pool(make_pool: MakePool) -> Pool:
    return make_pool()


@pytest.fixture
def caller(pool: Pool) -> Iterator[Caller]:
    caller = Caller(pool)
    yield caller
    caller.close()


def names(daemon: DaemonProcess, exchange: str) -> bool:
    """Whether a warning names it: that of the topology's watcher, or that of a session that could not go on."""
    return any(line["level"] == "warning" and f"exchange {exchange}" in str(line) for line in daemon.lines())


@pytest.mark.parametrize(
    "which",
    [
        "request",
        *(pytest.param(exchange, marks=pytest.mark.full) for exchange in ("orphan", "dead_letter", "activity")),
    ],
)
def test_a_deleted_exchange_is_named_and_no_confirmed_request_is_lost(
    pool: Pool, caller: Caller, make_daemon: MakeDaemon, which: str
) -> None:
    exchange = getattr(pool.names, f"{which}_exchange")
    daemon = make_daemon(pool, worker=LIBRARY, **LOOK)
    # Given keys that are warm, and requests on their way to others
    caller.publish(*KEYS)
    until(caller.all_answered, what="first answers")
    caller.publish(*KEYS, *(f"cold-{key}" for key in KEYS))
    # When an exchange is deleted, and requests go on
    pool.broker.management.delete("exchanges", pool.vhost, exchange)
    caller.publish(*KEYS, *(f"late-{key}" for key in KEYS))
    until(lambda: names(daemon, exchange), what="the exchange's name in the log")
    # Then all that the broker confirmed is answered once the topology is applied again
    pool.apply()
    until(caller.all_answered, what="answers to all that was confirmed")
    # And warm keys and new ones are served, by the daemon that never ended
    caller.publish(*KEYS, "new")
    until(caller.all_answered, what="answers after it")
    assert len(caller.confirmed) >= 4 * len(KEYS) + 1
    assert set(caller.answers.values()) == {"ok"}
    assert daemon.number == 1


def test_a_request_that_dies_without_a_dead_letter_exchange_is_answered_once_it_is_back(
    private_broker: Broker, tmp_path: Path
) -> None:
    # Given a broker that retries a dead letter after a second instead of three minutes
    retry = "application:set_env(rabbit, dead_letter_worker_publisher_confirm_timeout, 1000)."
    private_broker.rabbitmqctl("eval", retry)
    private_broker.management.add_vhost("dying", private_broker.admin)
    pool = Pool.on(private_broker, "dying", delivery_limit=2)
    daemon = DaemonProcess.of(pool, tmp_path / "daemon", worker=LIBRARY, **LOOK).start()
    caller = Caller(pool)
    try:
        caller.publish("42")
        until(caller.all_answered, what="first answer")
        # When a request reaches its delivery limit and there is nowhere to send it
        private_broker.management.delete("exchanges", pool.vhost, pool.names.dead_letter_exchange)
        caller.publish("42", body=b"requeue")
        until(lambda: names(daemon, pool.names.dead_letter_exchange), what="the exchange's name in the log")
        caller.publish("42")
        until(lambda: caller.all_answered() or len(caller.answers) == 2, what="an answer to the next request")
        # Then it waits, and gets its answer once there is
        assert not caller.all_answered()
        pool.apply()
        until(caller.all_answered, what="the error reply")
        assert sorted(caller.answers.values()) == ["delivery_limit", "ok", "ok"]
    finally:
        caller.close()
        daemon.close()
