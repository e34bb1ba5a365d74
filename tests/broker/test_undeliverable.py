"""Messages that the broker cannot deliver over AMQP 0-9-1: AMQP 1.0 lets a client send them.

The broker closes the connection of each consumer. The delivery limits of the queues move such a message out of the way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from osrdyne_client import AsyncClient, errors
from osrdyne_client.dispatcher import CRASHES
from testbed.amqp_1_0 import UUID, LinkRefused, Sender, message
from testbed.command_line import osrdyne
from testbed.foreign_client import ForeignClient
from testbed.peer import peer_of
from testbed.pool import DaemonProcess, Pool
from testbed.waiting import until
from testbed.workers import LIBRARY, MINIMAL

pytestmark = pytest.mark.both_versions

MakePool = Callable[..., Pool]
MakeDaemon = Callable[..., DaemonProcess]
MakeClient = Callable[[Pool], ForeignClient]


@pytest.fixture
def pool(make_pool: MakePool) -> Pool:
    """A pool whose own queues have limits that are reached within seconds."""
    pool = make_pool(delivery_limit=2)
    pool.limit_deliveries(pool.names.orphan_queue, 10)
    pool.limit_deliveries(pool.names.dead_letter_queue, 20)
    return pool


def attack(pool: Pool, key: str) -> None:
    """Send a request that cannot be delivered, with a client's password."""
    with Sender.to_exchange(pool.client_uri, pool.names.request_exchange, key) as sender:
        sender.send(message(b"question", application=UUID))


def parked(pool: Pool) -> bool:
    return pool.depth(pool.names.parked_queue) == 1


def test_a_request_of_a_cold_key_is_parked_and_others_are_served_again(
    pool: Pool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    daemon = make_daemon(pool, worker=MINIMAL)

    attack(pool, "cold")

    until(lambda: parked(pool), what="the parked message")
    assert make_client(pool).ask("other", b"x").body == b"other|x"
    # And the daemon has led all the time, while its consumer failed
    assert daemon.sessions_ended() == 0
    assert said(daemon, "a message cannot be delivered") == [pool.names.orphan_queue, pool.names.dead_letter_queue]
    until(lambda: len(said(daemon, "the queue can be consumed again")) == 2, what="calm")
    until(lambda: daemon.status()["warnings"], what="the warning")
    assert "warning: core-parked holds 1 message" in osrdyne("status", "--url", daemon.url).out.decode()


def said(daemon: DaemonProcess, words: str) -> list[str]:
    """Return the queues that lines of the daemon's log are about."""
    return [line["queue"] for line in daemon.lines() if line["message"].startswith(words)]


def test_requests_that_wait_behind_one_are_served_and_only_its_deliveries_are_used_up(
    pool: Pool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    # Given requests around one that cannot be delivered, more than their queue's limit allows to fail together
    client = make_client(pool)
    ids = [client.send(f"before-{number}", b"x") for number in range(3)]
    for _ in range(3):
        attack(pool, "cold")
    ids += [client.send(f"after-{number}", b"x") for number in range(3)]

    make_daemon(pool, worker=MINIMAL)

    assert {answer.status for answer in client.wait(*ids)} == {"ok"}
    until(lambda: pool.depth(pool.names.parked_queue) == 3, what="the parked messages")


def test_a_message_in_the_queue_of_the_lock_ends_nothing(pool: Pool, make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(pool)

    # Other versions of RabbitMQ say it in other words, or let the link go.
    with pytest.raises(LinkRefused), Sender.to_queue(pool.uri(pool.users.worker), pool.names.leader_queue) as sender:
        sender.send(message(b"x", application=UUID))

    assert daemon.sessions_ended() == 0
    assert daemon.status()["state"] == "leading"


@pytest.mark.parametrize("before", [[], [message(b"of no call")]], ids=["alone", "behind one that can"])
async def test_a_client_goes_on_after_a_reply_that_cannot_be_delivered(
    pool: Pool, before: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    async with peer_of(pool, "42") as peer, AsyncClient(pool.client_uri, pool.settings.name) as client:
        call = asyncio.create_task(client.call("42", b"first"))
        first = await peer.take()
        reply_to = str(first.properties.reply_to)

        def reply() -> None:
            with Sender.to_queue(pool.uri(pool.users.worker), reply_to) as sender:
                for data in (*before, message(b"answer", application=UUID)):
                    sender.send(data)

        await asyncio.to_thread(reply)
        with pytest.raises(errors.ReplyAddressLost):
            await call

        again = asyncio.create_task(client.call("42", b"again"))
        second = await peer.take()
        assert second.properties.reply_to != reply_to
        peer.reply(second, b"answer")
        assert (await again).body == b"answer"
    # What stands before it is delivered to each connection, and is not a sign that the queue is good.
    assert (
        len([record for record in caplog.records if record.message.startswith("connection to the broker lost")])
        <= CRASHES
    )


def test_an_entry_of_the_poison_inventory_is_reported_with_what_to_do(pool: Pool, tmp_path: Path) -> None:
    # Given one that a worker wrote there
    with Sender.to_queue(pool.uri(pool.users.worker), pool.names.poison_queue) as sender:
        sender.send(message(b"bad", application=UUID))
    uri = tmp_path / "operator.uri"
    uri.write_text(pool.uri(pool.users.operator))

    done = osrdyne("poison", "list", "--pool", "core", "--broker-file", str(uri))

    assert done.code == 2
    assert "take it out with a client of AMQP 1.0" in done.line


def test_a_request_of_a_warm_key_is_parked_and_its_workers_go_on(
    pool: Pool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    make_daemon(pool, worker=LIBRARY)
    client = make_client(pool)
    assert client.ask("warm", b"x").body == b"warm|x"

    attack(pool, "warm")

    assert client.ask("warm", b"y").body == b"warm|y"
    until(lambda: parked(pool), what="the parked message")
