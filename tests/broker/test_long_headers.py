"""Messages whose headers are longer than a frame may be: AMQP 1.0 lets a client send them. They end no connection."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from osrdyne_amqp.codec.table import MOST_FIELDS, Opaque
from osrdyne_client import AsyncClient, errors
from testbed.amqp_1_0 import LONG, Sender, message
from testbed.command_line import osrdyne
from testbed.foreign_client import ForeignClient
from testbed.peer import consuming, peer_of
from testbed.pool import DaemonProcess, Pool
from testbed.waiting import until, until_in_thread
from testbed.workers import LIBRARY, MINIMAL

pytestmark = pytest.mark.both_versions

MakePool = Callable[..., Pool]
MakeDaemon = Callable[..., DaemonProcess]


class Attacker:
    """Sends requests with a long header with a client's password, and reads the replies."""

    def __init__(self, pool: Pool, client: ForeignClient) -> None:
        self._pool = pool
        self._client = client
        self._numbers = itertools.count(1)
        self._replies = client.reply_queue(pool.users.client)

    def send(self, key: str) -> str:
        name = f"long-{next(self._numbers)}"
        with Sender.to_exchange(self._pool.client_uri, self._pool.names.request_exchange, key) as sender:
            sender.send(message(b"question", application=LONG, correlation_id=name, reply_to=self._replies))
        return name


def test_a_request_of_a_cold_key_is_answered_and_ends_no_session(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: Callable[[Pool], ForeignClient]
) -> None:
    pool = make_pool()
    daemon = make_daemon(pool, worker=MINIMAL)
    client = make_client(pool)
    attacker = Attacker(pool, client)

    answer = client.wait(attacker.send("cold"))[0]

    assert answer.status == "invalid_request"
    assert "headers" in answer.headers["x-reason"]
    assert client.ask("other", b"x").body == b"other|x"
    assert daemon.sessions_ended() == 0


def test_a_request_without_a_caller_is_kept(make_pool: MakePool, make_daemon: MakeDaemon, tmp_path: Path) -> None:
    pool = make_pool()
    daemon = make_daemon(pool)
    with Sender.to_exchange(pool.client_uri, pool.names.request_exchange, "cold") as sender:
        sender.send(message(b"question", application=LONG))

    until(lambda: pool.depth(pool.names.unanswered_queue) == 1, what="the copy")

    (entry,) = json.loads(poison(pool, tmp_path, "list", "--json"))["entries"]
    assert (entry["key"], entry["reason"], entry["size"]) == ("cold", "invalid_request", len(b"question"))
    assert daemon.sessions_ended() == 0


def test_a_dead_letter_is_answered(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: Callable[[Pool], ForeignClient]
) -> None:
    # Given a request that waits for longer than an orphan lives, because no daemon runs
    pool = make_pool(orphan_ttl=0.1)
    client = make_client(pool)
    request = Attacker(pool, client).send("cold")
    until(lambda: pool.depth(pool.names.dead_letter_queue) == 1, what="a dead letter")

    daemon = make_daemon(pool)

    assert client.wait(request)[0].status == "invalid_request"
    assert daemon.sessions_ended() == 0


def test_a_request_of_a_warm_key_ends_no_connection_of_its_worker(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: Callable[[Pool], ForeignClient]
) -> None:
    pool = make_pool()
    daemon = make_daemon(pool, worker=LIBRARY)
    client = make_client(pool)
    attacker = Attacker(pool, client)
    assert client.ask("warm", b"x").body == b"warm|x"

    assert client.wait(attacker.send("warm"))[0].status == "invalid_request"

    assert client.ask("warm", b"y").body == b"warm|y"
    (output,) = (daemon.directory / "state").rglob("*.log")
    assert "refused a request" in output.read_text()
    assert "cannot be used" not in output.read_text()
    assert daemon.sessions_ended() == 0


async def test_a_reply_fails_its_call_and_no_other(make_pool: MakePool) -> None:
    pool = make_pool()
    async with peer_of(pool, "42") as peer, AsyncClient(pool.client_uri, pool.settings.name) as client:
        calls = [asyncio.create_task(client.call("42", b"%d" % number)) for number in range(2)]
        bad, good = [await peer.take() for _ in calls]
        reply_to, correlation_id = str(bad.properties.reply_to), str(bad.properties.correlation_id)

        def send() -> None:
            with Sender.to_queue(pool.uri(pool.users.worker), reply_to) as sender:
                sender.send(message(b"answer", application=LONG, correlation_id=correlation_id))

        await asyncio.to_thread(send)
        with pytest.raises(errors.RemoteError, match="cannot be read") as caught:
            await calls[int(bad.body)]
        peer.reply(good, b"answer")

        assert (await calls[int(good.body)]).body == b"answer"
        assert caught.value.status == "unreadable"
        # It was acknowledged, and over the first connection
        await until_in_thread(lambda: pool.depth(reply_to) == 0)
        assert client.is_connected


def poison(pool: Pool, directory: Path, *words: str) -> bytes:
    uri = directory / "operator.uri"
    uri.write_text(pool.uri(pool.users.operator))
    done = osrdyne("poison", *words, "--pool", "core", "--broker-file", str(uri))
    assert done.code == 0, done
    return done.out


def test_an_entry_of_the_poison_inventory_hides_no_other_and_can_be_buried(make_pool: MakePool, tmp_path: Path) -> None:
    pool = make_pool()
    with Sender.to_queue(pool.uri(pool.users.worker), pool.names.poison_queue) as sender:
        sender.send(message(b"long", application=LONG))
        sender.send(message(b"short"))

    long, short = json.loads(poison(pool, tmp_path, "list", "--json"))["entries"]
    assert (long["reason"], long["size"]) == ("unreadable", len(b"long"))
    assert (short["reason"], short["size"]) == (None, len(b"short"))
    assert b"headers are not read" in poison(pool, tmp_path, "show", long["id"])
    refused = osrdyne(
        *("poison", "replay", long["id"], "--pool", "core", "--broker-file", str(tmp_path / "operator.uri")),
        *("--audit", str(tmp_path / "audit")),
    )
    assert refused.code == 1
    assert "headers are not read" in refused.err
    poison(pool, tmp_path, "bury", long["id"], "--audit", str(tmp_path / "audit"))
    assert [entry["id"] for entry in json.loads(poison(pool, tmp_path, "list", "--json"))["entries"]] == [short["id"]]


async def test_headers_that_are_dear_to_read_pass_the_daemon_unread_and_unchanged(
    make_pool: MakePool, make_daemon: MakeDaemon
) -> None:
    pool = make_pool()
    make_daemon(pool)
    dear = [Decimal("1.5")] * 18_000
    async with AsyncClient(pool.client_uri, pool.settings.name) as client:
        call = asyncio.create_task(client.call("cold", b"question", headers={"dear": dear, "plain": "yes"}))
        await until_in_thread(lambda: pool.names.request_queue("cold") in pool.queues())

        async with consuming(pool, pool.names.request_queue("cold")) as peer:
            request = await peer.take()
            peer.reply(request, b"answer")

        assert (await call).body == b"answer"
    headers = request.properties.headers
    assert isinstance(headers["dear"], Opaque)
    assert headers["dear"].read() == dear
    assert headers["plain"] == "yes"
    assert "x-osrdyne-hops" in headers
    assert request.size > 100_000


async def test_a_request_with_very_many_headers_is_answered_by_daemon_and_worker(
    make_pool: MakePool, make_daemon: MakeDaemon
) -> None:
    pool = make_pool()
    make_daemon(pool, worker=LIBRARY)
    many = {f"h{number}": True for number in range(MOST_FIELDS + 1)}
    async with AsyncClient(pool.client_uri, pool.settings.name) as client:
        for state in ("cold", "warm"):
            with pytest.raises(errors.RemoteError, match=f"more than {MOST_FIELDS}"):
                await client.call("42", b"x", headers=many)
            assert (await client.call("42", state.encode())).body == b"42|" + state.encode()


async def test_a_request_with_as_many_headers_as_are_read_is_served_cold_and_warm(
    make_pool: MakePool, make_daemon: MakeDaemon
) -> None:
    pool = make_pool()
    make_daemon(pool, worker=LIBRARY)
    many = {f"h{number}": True for number in range(MOST_FIELDS)}
    async with AsyncClient(pool.client_uri, pool.settings.name) as client:
        for state in (b"cold", b"warm"):
            assert (await client.call("42", state, headers=many)).body == b"42|" + state
