"""Absolute deadlines on real brokers: whatever a request waits for counts, and the reply says for what it waited."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from unittest import mock

import pika
import pytest

from osrdyne_calls import limits
from osrdyne_client import Client
from osrdyne_client.errors import Expired
from testbed.foreign_client import ForeignClient
from testbed.pool import DaemonProcess, Pool
from testbed.waiting import PATIENCE_SECONDS, until
from testbed.workers import LIBRARY

pytestmark = pytest.mark.both_versions

MakePool = Callable[..., Pool]
MakeDaemon = Callable[..., DaemonProcess]
MakeClient = Callable[[Pool], ForeignClient]

MISSING = ["/does/not/exist"]


def expired_call(pool: Pool, key: str, *, seconds: float, body: bytes = b"x") -> str | None:
    """Call with our client, which must hear that its request expired before it stops waiting; returns the stage.

    The request lives for half of the time: the other half is for the answer on a busy machine.
    """
    with (
        mock.patch.object(limits, "DEADLINE_MARGIN_SECONDS", seconds),
        mock.patch.object(limits, "DEADLINE_SHARE", 0.5),
        Client(pool.client_uri, "core") as client,
        pytest.raises(Expired) as caught,
    ):
        client.call(key, body, timeout=seconds)
    return caught.value.stage


def in_ms(seconds: float) -> int:
    return int((time.time() + seconds) * 1000)


def occupy(pool: Pool, queue: str) -> None:
    """Put a queue of another kind under a request queue's name, so that the key's own cannot be made."""
    with pika.BlockingConnection(pika.URLParameters(pool.broker.amqp_uri(vhost=pool.vhost))) as connection:
        connection.channel().queue_declare(queue, durable=True, arguments={"x-queue-type": "classic"})


def test_a_deadline_that_cannot_be_read_is_answered_at_every_stage_and_the_key_serves_on(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool()
    make_daemon(pool, worker=LIBRARY)
    client = make_client(pool)

    cold = client.ask("42", b"x", headers={"x-deadline": "soon"})
    assert (cold.status, "x-deadline is str 'soon'" in cold.headers["x-reason"]) == ("invalid_request", True)
    assert client.ask("42", b"x").status == "ok"
    warm = client.ask("42", b"x", headers={"x-deadline": "soon"})
    assert (warm.status, "x-deadline is str 'soon'" in warm.headers["x-reason"]) == ("invalid_request", True)
    assert client.ask("42", b"x").status == "ok"


@pytest.mark.full
def test_a_request_whose_queue_cannot_be_made_expires_as_an_orphan(
    make_pool: MakePool, make_daemon: MakeDaemon
) -> None:
    pool = make_pool()
    occupy(pool, pool.names.request_queue("42"))
    make_daemon(pool, worker=MISSING)
    assert expired_call(pool, "42", seconds=8.0) == "orphan"


def test_a_request_that_no_daemon_saw_in_time_expires_as_an_orphan_and_is_not_executed(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool()
    client = make_client(pool)
    # Given requests with a deadline as header, as expiration, and as both; while no daemon runs
    ids = [
        client.send("42", headers={"x-deadline": in_ms(1.0)}),
        client.send("42", expiration="1000"),
        client.send("42", headers={"x-deadline": in_ms(1.0)}, expiration="1000"),
    ]
    late = in_ms(1.5)
    until(lambda: in_ms(0) > late, what="the deadlines to pass")
    daemon = make_daemon(pool, worker=LIBRARY)
    answers = client.wait(*ids)
    assert {(answer.status, answer.headers["x-expired-at"]) for answer in answers} == {("expired", "orphan")}
    assert daemon.worker_pids() == []


def test_a_request_whose_worker_never_starts_expires_at_its_start(make_pool: MakePool, make_daemon: MakeDaemon) -> None:
    pool = make_pool(start_failures=0)
    make_daemon(pool, worker=MISSING)
    assert expired_call(pool, "42", seconds=8.0) == "start"


def test_a_request_that_waits_for_busy_workers_expires_in_the_queue_and_is_never_executed(
    make_pool: MakePool, make_daemon: MakeDaemon
) -> None:
    pool = make_pool()
    make_daemon(pool, worker=LIBRARY)
    with Client(pool.client_uri, "core") as client:
        assert client.call("42", b"x").body == b"42|x"
        busy = client.submit("42", b"sleep 5")
        until(lambda: taken(pool), what="a busy worker")
        assert expired_call(pool, "42", seconds=4.0, body=b"never") == "queue"
        assert busy.result(timeout=PATIENCE_SECONDS).body == b"42|sleep 5"
        assert client.call("42", b"after").body == b"42|after"


def test_our_worker_says_that_a_request_expired_in_the_queue(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool()
    make_daemon(pool, worker=LIBRARY)
    client = make_client(pool)
    assert client.ask("42", b"x").status == "ok"
    busy = client.send("42", b"sleep 3")
    # Given a warm request that only its worker can find late
    answer = client.ask("42", b"late", headers={"x-deadline": in_ms(1.0)})
    assert (answer.status, answer.headers["x-expired-at"]) == ("expired", "queue")
    assert "before a worker could begin" in answer.headers["x-reason"]
    assert client.wait(busy)[0].status == "ok"


def test_a_deadline_outlives_the_daemon_that_forwarded_its_request(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool(start_failures=0)
    daemon = make_daemon(pool, worker=MISSING)
    client = make_client(pool)
    # Given a request without expiration, forwarded by a daemon that is killed then
    deadline = in_ms(6.0)
    number = client.send("42", headers={"x-deadline": deadline})
    until(lambda: pool.depth(pool.names.request_queue("42")) == 1, what="the forward")
    daemon.stop(signal.SIGKILL)
    daemon.start()
    # Then it is answered at its deadline, and not a time to live after any later moment
    answer = client.wait(number)[0]
    assert 0 <= in_ms(0) - deadline < 60_000
    assert (answer.status, answer.headers["x-expired-at"]) == ("expired", "start")


@pytest.mark.full
def test_requests_that_are_put_back_again_and_again_expire_at_their_deadline(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool()
    occupy(pool, pool.names.request_queue("bad"))
    make_daemon(pool, worker=MISSING, limits={"orphan_prefetch": 16, "held_orphans_per_key": 2})
    client = make_client(pool)
    deadline = in_ms(5.0)
    ids = [client.send("bad", headers={"x-deadline": deadline}) for _ in range(20)]
    answers = client.wait(*ids)
    assert 0 <= in_ms(0) - deadline < 60_000
    assert {(answer.status, answer.headers["x-expired-at"]) for answer in answers} == {("expired", "orphan")}


def taken(pool: Pool) -> bool:
    found = pool.broker.management.queue(pool.vhost, pool.names.request_queue("42"))
    return bool(found and found.get("messages_unacknowledged"))
