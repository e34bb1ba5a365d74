"""The poison inventory has bounds, and room for what workers failed on that clients cannot take."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.command_line import osrdyne
from testbed.foreign_client import ForeignClient
from testbed.pool import DaemonProcess, Pool
from testbed.waiting import until
from testbed.workers import SCRIPTED

pytestmark = pytest.mark.both_versions

MakePool = Callable[..., Pool]
MakeDaemon = Callable[..., DaemonProcess]
MakeClient = Callable[[Pool], ForeignClient]

#: What the scripted worker gives back each time: its requests reach the delivery limit.
BAD = b"requeue"


def change_policy(pool: Pool, name: str, **changes: Any) -> None:
    policy = pool.broker.management.get("policies", pool.vhost, name)
    definition = policy["definition"] | {key.replace("_", "-"): value for key, value in changes.items()}
    pool.broker.management.put("policies", pool.vhost, name, body=policy | {"definition": definition})


def depth(pool: Pool, queue: str) -> int:
    return pool.depth(queue) or 0


def listed(pool: Pool, directory: Path) -> dict[str, Any]:
    """Return what `osrdyne poison list` shows."""
    address = directory / "operator.uri"
    address.write_text(pool.uri(pool.users.operator))
    done = osrdyne("poison", "list", "--pool", pool.names.pool, "--broker-file", str(address), "--json")
    return dict(json.loads(done.out))


def test_a_flood_of_client_mistakes_drops_its_oldest_and_takes_no_room_from_failed_requests(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient, tmp_path: Path
) -> None:
    pool = make_pool(poison_max_length=10, delivery_limit=2)
    names = pool.names
    daemon, client = make_daemon(pool, worker=SCRIPTED), make_client(pool)

    # When a client sends far more than there is room for, with a key that no worker can be given, and no reply-to
    for number in range(500):
        client.send("a\0b", b"%d" % number, reply_to=None)
    client.send("bad", BAD, reply_to=None)

    # Then none circles: the newest are kept, and the others are counted
    def over() -> bool:
        waiting = [depth(pool, queue) for queue in (names.orphan_queue, names.dead_letter_queue, names.waiting_queue)]
        return not any(waiting) and daemon.status()["dropped"] == 490

    until(over, what="the end of the flood")
    assert 'osrdyne_poison_total{outcome="dropped"} 490.0' in daemon.get("/metrics")
    assert any("490 request(s) without a caller were dropped" in warning for warning in daemon.status()["warnings"])
    assert any(line["message"].startswith("a request without a caller was dropped") for line in daemon.lines())
    # And what workers failed on is kept, and shown first
    until(lambda: depth(pool, names.poison_queue) == 1, what="the request that workers failed on")
    found = listed(pool, tmp_path)
    reasons = [entry["reason"] for entry in found["entries"]]
    assert reasons == ["delivery_limit", *["invalid_key"] * 10]
    assert [entry["request_id"] for entry in found["entries"][1:]] == [str(number) for number in range(491, 501)]
    assert client.ask("cold", b"x").status == "ok"


def test_what_workers_failed_on_waits_for_room_in_no_ones_way_and_is_kept_once_there_is(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient, tmp_path: Path
) -> None:
    pool = make_pool(poison_max_length=1, delivery_limit=2)
    names = pool.names
    change_policy(pool, names.waiting_queue, message_ttl=1500)
    daemon, client = make_daemon(pool, worker=SCRIPTED), make_client(pool)

    sent: set[str] = set()

    # The broker refuses a moment after it is full
    def waits() -> bool:
        sent.add(client.send("bad", BAD))
        assert {answer.status for answer in client.wait(*sent)} == {"delivery_limit"}
        return depth(pool, names.waiting_queue) > 0

    until(waits, what="the copies that wait")

    # Then nothing stays where others have to pass, and a person sees it
    until(lambda: daemon.status()["warnings"], what="the warning")
    until(lambda: depth(pool, names.dead_letter_queue) == 0, what="a free dead-letter queue")
    assert client.ask("cold", b"x").status == "ok"
    kept: set[str] = set()

    def all_kept() -> bool:
        address = tmp_path / "operator.uri"
        address.write_text(pool.uri(pool.users.operator))
        done = osrdyne(
            *("poison", "bury", "--pool", names.pool, "--broker-file", str(address)),
            *("--all", "--yes", "--json", "--audit", str(tmp_path / "audit")),
        )
        kept.update(entry["request_id"] for entry in json.loads(done.out)["buried"])
        return kept == sent

    until(all_kept, what="each copy")
    until(lambda: not depth(pool, names.waiting_queue) + depth(pool, names.dead_letter_queue), what="rest")


def test_the_inventory_has_a_bound_in_bytes(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool(poison_max_bytes=1_000_000, delivery_limit=2)
    daemon, client = make_daemon(pool, worker=SCRIPTED), make_client(pool)

    for _ in range(10):
        client.send("a\0b", b"x" * 400_000, reply_to=None)

    until(lambda: daemon.status()["dropped"] == 8, what="the dropped")
    until(lambda: depth(pool, pool.names.unanswered_queue) == 2, what="the others")

    # The broker refuses a moment after it is full
    def waits() -> bool:
        client.wait(client.send("bad", BAD + b":" + b"x" * 400_000))
        return depth(pool, pool.names.waiting_queue) > 0

    until(waits, what="the waiting")
    assert depth(pool, pool.names.poison_queue) < 8


def test_a_pool_of_an_earlier_topology_gets_its_other_queues_without_losing_a_message(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient, tmp_path: Path
) -> None:
    # Given a pool of before, whose inventory is full, and requests that find no room
    pool = make_pool()
    names = pool.names
    change_policy(pool, names.poison_queue, max_length=5)
    for queue in (names.unanswered_queue, names.waiting_queue):
        pool.broker.management.delete("queues", pool.vhost, queue)
        pool.broker.management.delete("policies", pool.vhost, queue)
    daemon, client = make_daemon(pool, worker=SCRIPTED), make_client(pool)
    for number in range(12):
        client.send("a\0b", b"%d" % number, reply_to=None)
    until(lambda: depth(pool, names.poison_queue) >= 5, what="a full inventory")
    assert len(listed(pool, tmp_path)["entries"]) >= 5
    assert client.ask("cold", b"x").status == "ok"

    # When the topology is applied while the daemon acts
    pool.apply()

    # Then each is kept, once
    until(lambda: len(listed(pool, tmp_path)["entries"]) == 12, what="each request")
    assert sorted(int(entry["request_id"]) for entry in listed(pool, tmp_path)["entries"]) == list(range(1, 13))
    assert daemon.status()["dropped"] == 0
