"""A key whose workers cannot be started: all who wait for it get an answer at once, with the reason, and one only.

A key whose workers start, and die at a request, has the next one at once.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika
import pytest

from osrdyne_client import Client, StartFailed
from osrdyne_pool.topology import request_queue_arguments
from testbed.command_line import osrdyne
from testbed.foreign_client import Answer, ForeignClient
from testbed.pool import DaemonProcess, Pool
from testbed.waiting import until
from testbed.workers import LIBRARY, MINIMAL

MakePool = Callable[..., Pool]
MakeDaemon = Callable[..., DaemonProcess]
MakeClient = Callable[[Pool], ForeignClient]

#: Ends before it says `started`.
ENDS_AT_ONCE = [sys.executable, "-I", "-S", "-c", "open('data/XX.json')"]
#: Dies at its first request, and sends no events.
SILENT_PROGRAM = """
import os, pika
channel = pika.BlockingConnection(pika.URLParameters(os.environ["WORKER_AMQP_URI"])).channel()
channel.basic_consume(os.environ["WORKER_REQUESTS_QUEUE"], lambda *_: os._exit(3))
channel.start_consuming()
"""
SILENT = [sys.executable, "-c", SILENT_PROGRAM]
SAID = "FileNotFoundError: [Errno 2] No such file or directory: 'data/XX.json'"


def reason_of(answer: Answer) -> str:
    return str(answer.headers["x-reason"])


def kept_in(pool: Pool) -> list[dict[str, Any]]:
    """Take what is in the poison inventory, and return the headers of each."""
    with pika.BlockingConnection(pika.URLParameters(pool.broker.amqp_uri(vhost=pool.vhost))) as connection:
        channel = connection.channel()
        count = channel.queue_declare(pool.names.poison_queue, passive=True).method.message_count
        return [dict(channel.basic_get(pool.names.poison_queue)[1].headers) for _ in range(count)]


def ends_of(daemon: DaemonProcess, key: str) -> list[dict[str, Any]]:
    return [end for end in daemon.status()["ends"] if end["key"] == key]


def test_all_who_wait_for_workers_that_end_at_once_are_answered_once_and_read_why(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool()
    daemon = make_daemon(pool, worker=ENDS_AT_ONCE)
    client = make_client(pool)
    # Given requests that wait in the queue, one of them without a caller
    first = [client.send("XX", b"waits") for _ in range(20)]
    client.send("XX", b"kept", reply_to=None)
    # When its starts have failed, then they are answered long before they expire
    for answer in client.wait(*first):
        assert answer.status == "start_failed"
        assert reason_of(answer).startswith("workers of this key could not be started, ")
        assert reason_of(answer).endswith(SAID)
    # And so are those that come between two tries, or during one
    later = [client.ask("XX", b"later").status for _ in range(10)]
    assert set(later) == {"start_failed"}
    with Client(pool.client_uri, "core") as ours, pytest.raises(StartFailed, match=re.escape(SAID)):
        ours.call("XX", b"ours")
    # And each has one answer
    client.poll()
    assert {len(answers) for answers in client.answers.values()} == {1}
    # And the last ends are shown
    (*_, end) = ends_of(daemon, "XX")
    assert (end["how"], end["started"], end["held"], end["output"][-1]) == ("exit 1", False, 0, SAID)
    shown = osrdyne("status", "--url", daemon.url, "--key", "XX").out.decode()
    assert "worker-ended, exit 1, ran 0s, before started: worker exited with status 1" in shown
    assert f"    {SAID}" in shown
    # When its worker can be started, then the request without a caller is served, as are new ones
    daemon.stop()
    daemon.settings["driver"]["template"]["command"] = MINIMAL
    daemon.start()
    assert client.ask("XX", b"x").body == b"XX|x"
    for queue in (pool.names.orphan_queue, pool.names.request_queue("XX")):
        until(lambda name=queue: pool.depth(name) == 0, what=f"an empty {queue}")  # type: ignore[misc]
    assert pool.depth(pool.names.unanswered_queue) == 0


def test_a_request_that_expires_says_how_its_workers_ended_unless_the_pool_hides_it(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    for hides in (False, True):
        pool = make_pool(message_ttl=2.0, start_failures=0, worker_reasons=not hides)
        daemon = make_daemon(pool, worker=ENDS_AT_ONCE)
        answer = make_client(pool).ask("XX", b"x")
        assert (answer.status, answer.headers["x-expired-at"]) == ("expired", "start")
        assert reason_of(answer).startswith("no worker took the request in time")
        assert reason_of(answer).endswith(SAID) is not hides
        daemon.stop()


def test_a_daemon_without_the_right_to_take_requests_answers_new_ones(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    # Given a pool of an earlier topology
    pool = make_pool(message_ttl=6.0)
    management, user = pool.broker.management, pool.users.daemon
    given = management.get("permissions", pool.vhost, user)
    read = "^core-(req-xchg|orphan|dl|activity|leader)$"
    management.put("permissions", pool.vhost, user, body={**given, "read": read})
    daemon = make_daemon(pool, worker=ENDS_AT_ONCE)
    client = make_client(pool)
    waits = client.send("XX", b"waits")
    until(lambda: "the daemon may not take requests" in daemon.log(), what="the warning")
    assert client.ask("XX", b"new").status == "start_failed"
    assert client.wait(waits)[0].status == "expired"
    assert daemon.status()["state"] == "leading"


@pytest.mark.both_versions
def test_requests_that_a_daemon_had_in_hand_when_it_ended_are_not_taken_for_a_workers(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool(delivery_limit=2)
    names, client = pool.names, make_client(pool)
    with pika.BlockingConnection(pika.URLParameters(pool.uri(pool.users.daemon))) as connection:
        channel = connection.channel()
        channel.queue_declare(names.request_queue("XX"), durable=True, arguments=request_queue_arguments("XX"))
        channel.queue_bind(names.request_queue("XX"), names.request_exchange, "XX")
    waiting = [client.send("XX", b"waits") for _ in range(2)]
    for _ in range(2):
        # As a daemon that is killed in the midst of a look
        with pika.BlockingConnection(pika.URLParameters(pool.uri(pool.users.daemon))) as connection:
            channel, in_hand = connection.channel(), set[bytes]()
            until(
                lambda channel=channel, in_hand=in_hand: (  # type: ignore[misc]
                    in_hand.add(channel.basic_get(names.request_queue("XX"))[2]) or len(in_hand - {None}) >= 1
                ),
                what="a request in hand",
            )
    make_daemon(pool, worker=ENDS_AT_ONCE)
    assert [answer.status for answer in client.wait(*waiting)] == ["start_failed"] * 2
    assert pool.depth(names.poison_queue) == 0


@pytest.mark.both_versions
@pytest.mark.parametrize("has_caller", [True, pytest.param(False, marks=pytest.mark.full)])
def test_a_request_that_kills_workers_that_say_nothing_ends_in_the_poison_inventory(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient, has_caller: bool
) -> None:
    # Given workers that look as if they did not start: they die at the request, and send no events
    pool = make_pool(delivery_limit=3)
    make_daemon(pool, worker=SILENT)
    client = make_client(pool)
    if has_caller:
        assert client.ask("42", b"poison").status == "delivery_limit"
    else:
        client.send("42", b"poison", reply_to=None)
    until(lambda: pool.depth(pool.names.poison_queue) == 1, what="a copy")
    (kept,) = kept_in(pool)
    assert (kept["x-osrdyne-poison-reason"], kept["x-osrdyne-poison-key"]) == ("delivery_limit", "42")
    assert kept["x-osrdyne-poison-deliveries"] == 6


@pytest.mark.parametrize("prefetch", ["1", "8"])
def test_a_worker_that_dies_at_a_request_each_time_comes_back_without_pauses_that_grow(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient, tmp_path: Path, prefetch: str
) -> None:
    daemon = make_daemon(
        pool := make_pool(delivery_limit=5), worker=LIBRARY, environment={"RUNNER": "thread", "PREFETCH": prefetch}
    )
    client = make_client(pool)
    assert client.ask("42", b"before").status == "ok"
    # The first worker dies once the daemon knows that it is at work: what one says right before its end may be lost.
    crash = client.send("42", f"crash {tmp_path}/die".encode())
    until(lambda: daemon.metric('osrdyne_activity_events_total{event="request-received"}') == 2, what="its event")
    (tmp_path / "die").touch()
    (answer,) = client.wait(crash)
    assert answer.status == "delivery_limit"
    assert client.ask("42", b"after").status == "ok"
    failed = [line for line in daemon.lines() if line["message"].startswith("group failed")]
    assert len(failed) == 6
    # Of later ones, now and then one is a second failure. Pauses that always double come to 16 s.
    assert max(line["retry_in"] for line in failed) < 8.0
    assert any(end["started"] and end["held"] == 1 for end in ends_of(daemon, "42"))
