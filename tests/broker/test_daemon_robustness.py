"""What could mislead or overload a daemon: large orphans, queues of others under its names, a broker in alarm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from testbed.broker import MEMORY_MB, Broker
from testbed.command_line import osrdyne
from testbed.foreign_client import ForeignClient
from testbed.pool import DaemonProcess, Pool
from testbed.waiting import until
from testbed.workers import MINIMAL

pytestmark = pytest.mark.both_versions

MakePool = Callable[..., Pool]
MakeDaemon = Callable[..., DaemonProcess]
MakeClient = Callable[[Pool], ForeignClient]

MIB = 1024 * 1024


def foreign_queue(pool: Pool, name: str, **arguments: Any) -> None:
    """Make a queue as another program would."""
    pool.broker.management.put("queues", pool.vhost, name, body={"durable": True, "arguments": arguments})


# --- memory -----------------------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("keys", [1, 32], ids=["one key", "many keys"])
def test_large_orphans_whose_queues_cannot_be_had_do_not_fill_the_memory(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient, keys: int
) -> None:
    # Given 32 orphans of 4 MiB, more than the daemon may hold; another program owns the queues of their keys
    pool, number, size = make_pool(), 32, 4 * MIB
    names = [f"bad-{place % keys}" for place in range(number)]
    for key in set(names):
        foreign_queue(pool, pool.names.request_queue(key), **{"x-queue-type": "classic"})
    client = make_client(pool)
    for key in names:
        client.send(key, bytes(size))
    daemon = make_daemon(pool, worker=MINIMAL, limits={"held_bytes": 4 * MIB})
    assert daemon.process is not None
    process = psutil.Process(daemon.process.pid)
    before, most = process.memory_info().rss, [0]

    # When it has had them all in its hands
    def seen_often() -> bool:
        most[0] = max(most[0], process.memory_info().rss)
        return daemon.metric('osrdyne_orphans_total{outcome="put_back"}') >= number

    until(seen_often, every=0.01, what="orphans put back")
    assert most[0] - before < number * size / 2, f"grew by {(most[0] - before) / MIB:.0f} MiB"

    # Then a small request of another key is served all the same, and none of them is gone
    assert client.wait(client.send("good", b"x"))[0].body == b"good|x"
    daemon.stop()
    # A copy more is one that was put back and could not be acknowledged any more.
    until(lambda: (pool.depth(pool.names.orphan_queue) or 0) >= number, what="all orphans back in their queue")


# --- queues of others -------------------------------------------------------------------------------------------------


def test_a_queue_of_others_under_a_keys_name_is_reported_and_never_deleted(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool(unbind_delay=1.0, stop_delay=1.0)
    name = pool.names.request_queue("42")
    foreign_queue(pool, name, **{"x-queue-type": "quorum", "x-osrdyne-key": "42", "x-max-length": 5})
    foreign_queue(pool, pool.names.request_queue("other"), **{"x-queue-type": "quorum", "x-osrdyne-key": "7"})
    daemon = make_daemon(pool, worker=MINIMAL)
    client = make_client(pool)
    waiting = client.send("42", b"x")
    assert client.wait(client.send("7", b"x"))[0].body == b"7|x"

    def error() -> str:
        found = daemon.key("42")
        return str(found["last_error"]) if found else ""

    until(lambda: f"queue {name} is not osrdyne's" in error(), what="the key's error")
    assert "empty and delete it" in error()
    # When its owner removes it, the request that waited is served
    pool.broker.management.delete("queues", pool.vhost, name)
    assert client.wait(waiting)[0].body == b"42|x"


def test_a_queue_that_others_made_in_place_of_ours_outlives_its_key(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool(unbind_delay=1.0, stop_delay=1.0)
    daemon = make_daemon(pool, worker=MINIMAL)
    client = make_client(pool)
    # Given two keys, one of which has its queue replaced behind the daemon's back, without a binding
    client.wait(client.send("ours", b"x"), client.send("theirs", b"x"))
    name = pool.names.request_queue("theirs")
    pool.broker.management.delete("queues", pool.vhost, name)
    foreign_queue(pool, name, **{"x-queue-type": "quorum"})
    # When both are idle for long enough
    until(lambda: pool.names.request_queue("ours") not in pool.queues(), what="deletion of our queue")
    until(lambda: daemon.key("theirs") is None, what="the end of the other key")
    # Then what is not ours is still there
    assert name in pool.queues()
    assert "left alone" in daemon.log()


# --- what an operator sees --------------------------------------------------------------------------------------------


@pytest.fixture
def own_pool(private_broker: Broker) -> Pool:
    private_broker.management.add_vhost("seen", private_broker.admin)
    return Pool.on(private_broker, "seen")


@pytest.fixture
def own_daemon(own_pool: Pool, tmp_path: Path) -> Iterator[DaemonProcess]:
    process = DaemonProcess.of(own_pool, tmp_path / "daemon", worker=MINIMAL).start()
    yield process
    process.close()


def test_an_alarm_of_the_broker_and_the_depths_of_the_pools_queues_are_seen(
    own_pool: Pool, own_daemon: DaemonProcess
) -> None:
    broker, daemon, pool = own_pool.broker, own_daemon, own_pool
    for _ in range(3):
        body = {"properties": {}, "routing_key": "core-poison", "payload": "x", "payload_encoding": "string"}
        broker.management.call("POST", "exchanges", pool.vhost, "amq.default", "publish", body=body)
    until(lambda: daemon.status()["queues"]["core-poison"] == 3, what="the depth of the poison queue")
    rest = {"core-unanswered": 0, "core-waiting": 0, "core-parked": 0}
    assert daemon.status()["queues"] == {"core-orphan": 0, "core-dl": 0, "core-poison": 3, **rest}
    assert daemon.metric('osrdyne_queue_messages{queue="core-poison"}') == 3
    assert daemon.status()["alarm"] is None

    broker.rabbitmqctl("set_vm_memory_high_watermark", "absolute", "1MB")
    until(lambda: daemon.status()["alarm"] is not None, what="the alarm")
    assert daemon.status()["alarm"] == "memory"
    assert daemon.metric("osrdyne_broker_alarm") == 1
    text = osrdyne("status", "--url", daemon.url).out.decode()
    assert "broker alarm (memory): it takes no publishes" in text
    assert "messages in core-orphan 0, core-dl 0, core-poison 3, core-unanswered 0, core-waiting 0" in text

    broker.rabbitmqctl("set_vm_memory_high_watermark", "absolute", f"{MEMORY_MB}MB")
    until(lambda: daemon.status()["alarm"] is None, what="the end of the alarm")
    assert daemon.metric("osrdyne_broker_alarm") == 0
    alarm_lines = [line["message"] for line in daemon.lines() if line["message"].startswith("broker alarm")]
    assert alarm_lines == ["broker alarm: it takes no publishes, and all wait", "broker alarm is over"]


def test_a_stranger_that_listens_to_orphans_or_dead_letters_is_found(
    make_pool: MakePool, make_daemon: MakeDaemon
) -> None:
    pool = make_pool()
    api, vhost = pool.broker.management, pool.vhost
    foreign_queue(pool, "audit")
    api.put("exchanges", vhost, "tap", body={"type": "fanout", "durable": True})
    api.call("POST", "bindings", vhost, "e", "core-orphan-xchg", "q", "audit", body={"routing_key": ""})
    api.call("POST", "bindings", vhost, "e", "core-dl-xchg", "e", "tap", body={"routing_key": ""})
    daemon = make_daemon(pool)
    until(lambda: daemon.metric("osrdyne_topology_findings") == 2, what="the findings")
    done = osrdyne("lint", "--settings", str(daemon.directory / "settings.toml"), "--live")
    assert done.code == 1
    assert b"copies every message of core-orphan-xchg to audit" in done.out
    assert b"copies every message of core-dl-xchg to tap (an exchange)" in done.out


def test_many_failing_keys_are_a_few_lines_of_the_log(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool, keys = make_pool(), 60
    daemon = make_daemon(pool, worker=["/nowhere/worker"], limits={"starts_in_flight": 60})
    client = make_client(pool)
    for number in range(keys):
        client.send(f"key-{number}", b"x")
    until(lambda: daemon.metric('osrdyne_keys{state="failed"}') == keys, what="every key failed")
    failed = [line for line in daemon.lines() if line["message"] == "group failed; it is tried again"]
    assert len(failed) == 20
