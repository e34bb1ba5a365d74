"""Bad input gets a clear answer, disturbs no other request, and loses nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pika
import pytest

from testbed.foreign_client import ForeignClient
from testbed.pool import DaemonProcess, Pool
from testbed.waiting import until
from testbed.workers import MINIMAL, SCRIPTED
from tests.conftest import Vhost

# In one process, so that one daemon serves those that share it.
pytestmark = pytest.mark.xdist_group("bad-input")

MakePool = Callable[..., Pool]
MakeDaemon = Callable[..., DaemonProcess]
MakeClient = Callable[[Pool], ForeignClient]


@dataclass
class ServedPool:
    """A pool with a daemon to which several tests send bad input, each with keys of its own."""

    pool: Pool
    daemon: DaemonProcess

    def knows(self, *keys: str) -> bool:
        """Whether one of these keys has a queue, or the daemon knows it."""
        known = {key["key"] for key in self.daemon.status()["keys"]}
        return bool(known & {*keys} or {self.pool.names.request_queue(key) for key in keys} & self.pool.queues())


@pytest.fixture(scope="module")
def served(module_vhost: Vhost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedPool]:
    pool = Pool.on(module_vhost.broker, module_vhost.name)
    daemon = DaemonProcess.of(pool, tmp_path_factory.mktemp("bad-input"), worker=MINIMAL)
    try:
        daemon.start()
        yield ServedPool(pool, daemon)
    finally:
        daemon.close()
        pool.remove_users()


@pytest.fixture
def client(served: ServedPool, make_client: MakeClient) -> ForeignClient:
    return make_client(served.pool)


def kept(pool: Pool) -> list[tuple[pika.BasicProperties, bytes]]:
    """Take all requests without a caller out of the inventory."""
    connection = pika.BlockingConnection(pika.URLParameters(pool.broker.amqp_uri(vhost=pool.vhost)))
    channel = connection.channel()
    found: list[tuple[pika.BasicProperties, bytes]] = []
    while True:
        method, properties, body = channel.basic_get(pool.names.unanswered_queue, auto_ack=True)
        if method is None:
            connection.close()
            return found
        found.append((properties, body))


def test_a_request_with_user_id_is_served_cold_and_warm(served: ServedPool, client: ForeignClient) -> None:
    for _ in ("cold", "warm"):
        assert client.ask("user", b"x", user_id=served.pool.users.client).body == b"user|x"


def test_a_request_with_cc_is_refused_with_the_reason_and_reaches_no_worker(
    served: ServedPool, client: ForeignClient
) -> None:
    answer = client.ask("cc-42", b"x", headers={"CC": ["cc-43", "cc-44"]})
    assert answer.status == "invalid_request"
    assert "CC" in answer.headers["x-reason"]
    assert not served.knows("cc-42", "cc-43", "cc-44")


def test_a_request_with_bcc_is_served_under_its_own_key(client: ForeignClient) -> None:
    # The broker removes BCC before the daemon sees it, so the daemon cannot refuse the request.
    assert client.ask("bcc-42", b"x", headers={"BCC": ["bcc-43"]}).body == b"bcc-42|x"


def test_unknown_headers_arrive_at_a_cold_worker_as_they_came(client: ForeignClient) -> None:
    odd: list[dict[str, Any]] = [
        {"x-rpc-path": "a.b.c"},
        {"n": None, "t": True, "i": -(2**40), "l": [1, ["x"]], "d": {"e": {}}, "b": b"\xff\x00"},
        {"x-osrdyne-hops": b"1"},
        {f"h{number}": "v" * 200 for number in range(100)},
    ]
    ids = [client.send(f"odd-{number}", b"x", headers=headers) for number, headers in enumerate(odd)]
    assert {answer.status for answer in client.wait(*ids)} == {"ok"}


def test_headers_too_large_to_be_forwarded_are_answered_and_others_are_served(
    served: ServedPool, client: ForeignClient
) -> None:
    # Given a header that fits into a frame alone, and no more with what the daemon adds
    large = client.send("large", b"x", headers={"h": "v" * 130_900})
    fine = [client.send(f"fine-{number}", b"x") for number in range(5)]
    assert {answer.status for answer in client.wait(*fine)} == {"ok"}
    assert client.wait(large)[0].status == "invalid_request"
    assert served.daemon.get("/readyz") == "ready\n"


def test_a_body_of_16_mib_is_served_cold(make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient) -> None:
    pool = make_pool()
    make_daemon(pool, worker=SCRIPTED)
    client = make_client(pool)
    ids = [client.send(key, b"x" * (16 * 1024 * 1024)) for key in ("a", "b")]
    assert {answer.status for answer in client.wait(*ids)} == {"ok"}


def test_a_request_without_reply_to_is_served_and_without_correlation_id_is_answered_without(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool()
    make_daemon(pool, worker=SCRIPTED)
    client = make_client(pool)
    client.send("42", b"silent", reply_to=None)
    client.send("42", b"anonymous", correlation_id=None)

    def answered() -> bool:
        client.poll()
        return None in client.answers

    until(answered, what="answer without correlation id")
    assert [answer.body.split(b"|")[2] for answer in client.answers[None]] == [b"anonymous"]
    until(lambda: pool.depth(pool.names.request_queue("42")) == 0, what="empty queue")
    assert pool.depth(pool.names.poison_queue) == pool.depth(pool.names.unanswered_queue) == 0


@pytest.mark.parametrize("queue", ["orphan", "dl", "activity", "req-own"])
def test_a_reply_to_that_names_a_queue_of_the_pool_is_refused_and_kept(
    served: ServedPool, client: ForeignClient, queue: str
) -> None:
    client.send("own", b"x", reply_to=f"core-{queue}")
    # Not by the depth of the inventory: the broker counts late, and may still count what another test took out.
    [(properties, body)] = until(lambda: kept(served.pool), what="kept request")
    assert body == b"x"
    assert properties.headers["x-osrdyne-poison-reason"] == "rejected"
    assert properties.headers["x-osrdyne-poison-key"] == "own"
    assert not served.knows("own")


def test_an_activity_event_of_an_unknown_key_or_without_type_wakes_nothing(
    make_pool: MakePool, make_daemon: MakeDaemon
) -> None:
    pool = make_pool()
    daemon = make_daemon(pool, worker=MINIMAL)
    connection = pika.BlockingConnection(pika.URLParameters(pool.uri(pool.users.worker)))
    channel = connection.channel()
    for headers in ({"x-event": "started"}, {"x-event": "request-received"}, {}, None, {"x-event": 7}):
        channel.basic_publish(pool.names.activity_exchange, "unknown", b"", pika.BasicProperties(headers=headers))
    connection.close()

    def counted(event: str) -> float:
        return daemon.metric(f'osrdyne_activity_events_total{{event="{event}"}}')

    until(lambda: counted("unknown_key") == 2 and counted("unreadable") == 3, what="counted events")
    assert daemon.status()["keys"] == []
    assert pool.names.request_queue("unknown") not in pool.queues()


def test_a_request_that_expires_without_a_caller_is_kept_with_its_key(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool(message_ttl=1.0)
    make_daemon(pool, worker=["/does/not/exist"])
    make_client(pool).send("a/b", b"precious", reply_to=None)
    until(lambda: pool.depth(pool.names.unanswered_queue) == 1, what="kept request")
    [(properties, body)] = kept(pool)
    assert (properties.headers["x-osrdyne-poison-key"], body) == ("a/b", b"precious")


def test_a_missing_static_queue_is_named_with_what_to_do(make_pool: MakePool, make_daemon: MakeDaemon) -> None:
    pool = make_pool()
    pool.broker.management.delete("queues", pool.vhost, pool.names.orphan_queue)
    daemon = make_daemon(pool, worker=MINIMAL, start=False)
    daemon.start(ready=False)
    daemon.wait_for("waiting")
    detail = daemon.status()["detail"]
    assert "queue core-orphan" in detail
    assert "missing; apply it" in detail
    # And it begins by itself once the topology is complete
    pool.apply()
    daemon.wait_for("leading")


def test_a_wrong_password_is_reported_and_needs_no_restart_once_it_is_right(
    make_pool: MakePool, make_daemon: MakeDaemon
) -> None:
    pool = make_pool()
    daemon = make_daemon(pool, worker=MINIMAL, start=False)
    user, right = pool.users.daemon, pool.passwords[pool.users.daemon]
    pool.broker.management.put("users", user, body={"password": "other", "tags": "monitoring"})
    daemon.start(ready=False)
    daemon.wait_for("waiting")
    detail = daemon.status()["detail"]
    assert user in detail
    assert "password" in detail
    assert right not in detail
    pool.broker.management.put("users", user, body={"password": right, "tags": "monitoring"})
    daemon.wait_for("leading")
