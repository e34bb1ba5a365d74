"""The nine invariants (docs/explain/invariants.md) on a real broker, with short delays.

Each test has the number of its own.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pika
import pytest

from osrdyne_pool.broker.management import ManagementRefused
from testbed.foreign_client import ForeignClient
from testbed.pool import DaemonProcess, Pool
from testbed.waiting import until
from testbed.workers import MINIMAL, SCRIPTED

pytestmark = pytest.mark.both_versions

MakePool = Callable[..., Pool]
MakeDaemon = Callable[..., DaemonProcess]
MakeClient = Callable[[Pool], ForeignClient]


def is_empty(pool: Pool, queue: str) -> bool:
    return pool.depth(queue) == 0


def admin_channel(pool: Pool) -> pika.adapters.blocking_connection.BlockingChannel:
    connection = pika.BlockingConnection(pika.URLParameters(pool.broker.amqp_uri(vhost=pool.vhost)))
    channel = connection.channel()
    channel.confirm_delivery()
    return channel


def test_1_a_confirmed_request_ends_answered_or_in_the_poison_inventory(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool(delivery_limit=2, message_ttl=60.0)
    make_daemon(pool, worker=SCRIPTED)
    client = make_client(pool)
    # Given requests with and without a caller, of which some crash every worker that takes them
    good = [client.send(f"good-{number % 3}", b"x") for number in range(12)]
    crash = client.send("bad", b"crash")
    for _ in range(3):
        client.send("silent-bad", b"requeue", reply_to=None)
        client.send("silent-good", b"x", reply_to=None)
    # Then every caller is answered
    assert {answer.status for answer in client.wait(*good)} == {"ok"}
    assert client.wait(crash)[0].status == "delivery_limit"
    # And what crashed workers is kept: one with a caller, three without
    until(lambda: pool.depth(pool.names.poison_queue) == 4, what="poison")
    channel = admin_channel(pool)
    kept = [channel.basic_get(pool.names.poison_queue, auto_ack=True)[1] for _ in range(4)]
    assert Counter(entry.headers["x-osrdyne-poison-key"] for entry in kept) == {"bad": 1, "silent-bad": 3}
    assert {entry.headers["x-osrdyne-poison-reason"] for entry in kept} == {"delivery_limit"}
    channel.connection.close()
    # And nothing else is left anywhere
    for queue in ("bad", "silent-bad", "silent-good"):
        until(partial(is_empty, pool, pool.names.request_queue(queue)), what=f"empty {queue}")
    until(lambda: pool.depth(pool.names.orphan_queue) == pool.depth(pool.names.dead_letter_queue) == 0, what="no rest")


@pytest.mark.fast
def test_2_a_request_whose_worker_never_starts_is_answered_with_its_correlation_id(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool(message_ttl=2.0, start_failures=0)
    daemon = make_daemon(pool, worker=["/does/not/exist"])
    answer = make_client(pool).ask("42", b"x", correlation_id="my-id")
    assert (answer.status, answer.correlation_id) == ("expired", "my-id")
    key = daemon.key("42")
    assert key is not None
    assert key["state"] == "failed"
    assert "/does/not/exist" in key["last_error"]


def test_3_a_call_longer_than_both_delays_completes_and_its_queue_stays(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool(unbind_delay=1.0, stop_delay=1.0)
    daemon = make_daemon(pool, worker=SCRIPTED)
    answer = make_client(pool).ask("42", b"sleep:8")
    assert answer.status == "ok"
    # And it was the first worker that answered, at its first try
    assert len([line for line in daemon.lines() if line["message"] == "group started"]) == 1
    until(lambda: pool.names.request_queue("42") not in pool.queues(), what="end of the queue")
    until(lambda: not daemon.worker_pids(), what="end of the worker")


def test_3_messages_found_in_an_unbound_queue_bring_its_group_back(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool(unbind_delay=1.0, stop_delay=2.0, start_failures=0)
    daemon = make_daemon(pool, worker=["/does/not/exist"])
    client = make_client(pool)
    # Given a request whose worker cannot start, in a queue that is no longer wanted
    number = client.send("42", b"x")
    until(lambda: "messages found in an unwanted queue" in daemon.log(), what="found messages")
    # When its worker can be started
    daemon.stop()
    daemon.settings["driver"]["template"]["command"] = MINIMAL
    daemon.start()
    # Then it is answered
    assert client.wait(number)[0].body == b"42|x"


def test_3_a_queue_with_consumers_that_the_driver_does_not_own_stays(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool(unbind_delay=0.5, stop_delay=0.5)
    daemon = make_daemon(pool)
    client = make_client(pool)
    number = client.send("42", b"x")
    queue = pool.names.request_queue("42")
    until(lambda: queue in pool.queues(), what="queue")
    # Given a person's program that answers and goes on consuming, and sends no activity events
    channel = admin_channel(pool)
    channel.basic_consume(queue, lambda *_: None, auto_ack=True)
    channel.connection.process_data_events(0.2)
    until(lambda: (daemon.key("42") or {}).get("state") == "draining", what="draining")
    # Then the queue outlives several rechecks, and goes with its consumer
    rechecks = []

    def rechecked() -> bool:
        channel.connection.process_data_events(0.05)
        rechecks.append(queue in pool.queues())
        return len(rechecks) > 40

    until(rechecked, what="rechecks")
    assert all(rechecks)
    assert number not in client.answers
    channel.connection.close()
    until(lambda: queue not in pool.queues(), what="end of the queue")


def test_3_a_queue_that_others_bound_stays(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool(unbind_delay=1.0, stop_delay=1.0)
    daemon = make_daemon(pool, worker=MINIMAL)
    assert make_client(pool).ask("42").status == "ok"
    queue = pool.names.request_queue("42")
    channel = admin_channel(pool)
    channel.queue_bind(queue, "amq.topic", "mine")
    until(lambda: "another program bound" in ((daemon.key("42") or {}).get("last_error") or ""), what="error")
    assert queue in pool.queues()
    channel.queue_unbind(queue, "amq.topic", "mine")
    until(lambda: queue not in pool.queues(), what="end of the queue")
    channel.connection.close()


def test_4_a_daemon_killed_again_and_again_while_it_forwards_loses_no_request(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool()
    daemon = make_daemon(pool, worker=MINIMAL)
    client = make_client(pool)
    ids = []
    for generation in range(4):
        ids += [client.send(f"{generation}-{number}", b"x") for number in range(20)]
        # Killed once it has begun: some are forwarded, some are held, some have not been seen
        until(partial(has_any, client, ids[-20:]), what="first answer")
        daemon.stop(signal.SIGKILL)
        daemon.start()
    assert {answer.status for answer in client.wait(*ids)} == {"ok"}
    assert len(daemon.worker_pids()) == 80


def has_any(client: ForeignClient, ids: list[str]) -> bool:
    client.poll()
    return any(request_id in client.answers for request_id in ids)


def test_5_a_failing_key_delays_no_other_and_gets_its_error(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool(message_ttl=30.0, start_failures=0)
    daemon = make_daemon(
        pool,
        worker=SCRIPTED,
        environment={"REFUSE_KEY": "bad"},
        limits={"held_orphans_per_key": 4, "orphan_prefetch": 16},
    )
    client = make_client(pool)
    # Given far more requests for a key whose worker cannot start than the daemon may hold
    bad = [client.send("bad", b"x") for _ in range(100)]
    good = [client.send(f"good-{number}", b"x") for number in range(4)]
    # Then the others are answered while the bad ones still wait
    assert {answer.status for answer in client.wait(*good)} == {"ok"}
    assert not any(request_id in client.answers for request_id in bad)
    # And each of the bad ones gets its error in the end
    assert {answer.status for answer in client.wait(*bad)} == {"expired"}
    key = daemon.key("bad")
    assert key is not None
    assert "status 1" in key["last_error"]


def test_6_of_two_daemons_one_acts_and_the_other_takes_over(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient, tmp_path: Path
) -> None:
    pool = make_pool()
    shared = {"state_directory": str(tmp_path / "shared")}
    first = make_daemon(pool, worker=MINIMAL, driver=shared)
    second = make_daemon(pool, worker=MINIMAL, driver=shared, start=False)
    second.start(ready=False)
    second.wait_for("standby")
    client = make_client(pool)
    assert client.ask("a").status == "ok"
    workers = first.worker_pids()
    # When the leader is killed
    first.stop(signal.SIGKILL)
    second.wait_for("leading")
    # Then the other serves, with the same workers
    assert client.ask("a").status == "ok"
    assert second.worker_pids() == workers
    assert client.ask("b").status == "ok"


def test_6_a_leader_whose_lock_is_deleted_stops_acting_and_asks_for_it_again(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool()
    daemon = make_daemon(pool, worker=MINIMAL)
    # The management API refuses to delete another connection's exclusive queue; an operator's tool does not.
    pool.broker.rabbitmqctl("delete_queue", "--vhost", pool.vhost, pool.names.leader_queue)
    until(lambda: "the lock is lost" in daemon.log(), what="lost lock")
    daemon.wait_for("leading")
    assert make_client(pool).ask("42").status == "ok"


def test_6_two_pools_on_one_vhost_and_machine_do_each_other_no_harm(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient, tmp_path: Path
) -> None:
    shared = {"state_directory": str(tmp_path / "shared")}
    short = make_pool(name="core", unbind_delay=1.0, stop_delay=1.0)
    long = make_pool(name="core-two")
    first, second = make_daemon(short, worker=MINIMAL, driver=shared), make_daemon(long, worker=MINIMAL, driver=shared)
    assert make_client(short).ask("42").status == make_client(long).ask("42").status == "ok"
    workers = second.worker_pids()
    # When everything of one pool has come to its end
    until(lambda: not first.status()["keys"] and not first.worker_pids(), what="end of the first pool")
    # Then the other's group is what it was
    assert second.worker_pids() == workers
    assert long.names.request_queue("42") in long.queues()
    assert [key["key"] for key in second.status()["keys"]] == ["42"]


@pytest.mark.fast
def test_7_a_daemon_restart_restarts_no_worker_and_forgets_no_key(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool()
    daemon = make_daemon(pool, worker=MINIMAL)
    client = make_client(pool)
    assert {client.ask(key).status for key in ("a", "b", "c")} == {"ok"}
    workers = sorted(daemon.worker_pids())
    for number in (signal.SIGTERM, signal.SIGKILL):
        daemon.stop(number)
        assert sorted(daemon.worker_pids()) == workers
        daemon.start()
        assert [key["key"] for key in daemon.status()["keys"]] == ["a", "b", "c"]
        assert [key["workers"] for key in daemon.status()["keys"]] == [1, 1, 1]
    assert {client.ask(key).status for key in ("a", "b", "c")} == {"ok"}
    assert sorted(daemon.worker_pids()) == workers


@pytest.mark.fast
def test_8_no_message_stops_a_task_of_the_daemon(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool()
    daemon = make_daemon(pool, worker=MINIMAL)
    client = make_client(pool)
    names = pool.names
    channel = admin_channel(pool)
    odd = [
        pika.BasicProperties(),
        pika.BasicProperties(headers={"x-event": "started"}),
        pika.BasicProperties(headers={"x-event": b"\xff"}),
        pika.BasicProperties(headers={"x-event": ["started"]}),
        pika.BasicProperties(headers={"x-osrdyne-hops": "many", "x-deadline": "soon", "x-osrdyne-first-seen": -1}),
        pika.BasicProperties(headers={"x-first-death-reason": 7, "x-death": [{"routing-keys": [None]}]}),
        pika.BasicProperties(headers={"x-first-death-reason": "expired", "x-death": "none"}, reply_to="no-queue"),
        pika.BasicProperties(reply_to=names.orphan_queue, correlation_id="x" * 255),
        pika.BasicProperties(reply_to=names.request_queue("x"), headers={"CC": ["other"]}),
        pika.BasicProperties(headers={"deep": {"er": [{"x": None}]}}, expiration="60000", priority=9),
    ]
    exchanges = (names.request_exchange, names.orphan_exchange, names.dead_letter_exchange, names.activity_exchange)
    for exchange in exchanges:
        for properties in odd:
            for key in ("", "never-asked", "a\nb"):
                channel.basic_publish(exchange, key, b"odd", properties)
    channel.connection.close()
    for queue in (names.orphan_queue, names.dead_letter_queue, names.activity_queue):
        until(partial(is_empty, pool, queue), what=f"empty {queue}")
    assert client.ask("good").status == "ok"
    assert daemon.get("/readyz") == "ready\n"
    assert daemon.sessions_ended() == 0
    assert "unexpectedly" not in daemon.log()


def test_9_no_password_appears_where_people_look(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient, tmp_path: Path
) -> None:
    pool = make_pool(message_ttl=2.0)
    daemon = make_daemon(pool, worker=SCRIPTED, environment={"REFUSE_KEY": "bad"})
    client = make_client(pool)
    client.wait(client.send("good"), client.send("bad"))
    # A refused login is the kind of thing that is logged
    pool.broker.management.put("users", pool.users.daemon, body={"password": "another one", "tags": "monitoring"})
    for connection in pool.broker.management.get("connections"):
        if connection["user"] == pool.users.daemon:
            # The daemon ends the one for its events when it loses the other.
            with contextlib.suppress(ManagementRefused):
                pool.broker.management.delete("connections", connection["name"])
    daemon.wait_for("waiting")
    secrets = [password.encode() for password in pool.passwords.values()]
    texts = {
        "status": daemon.get("/status").encode(),
        "metrics": daemon.get("/metrics").encode(),
        "readyz": daemon.log().encode(),
        "settings": (daemon.directory / "settings.toml").read_bytes(),
    }
    for file in (daemon.directory / "state").rglob("*"):
        if file.is_file():
            texts[str(file)] = file.read_bytes()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                texts[f"command line of {entry.name}"] = (entry / "cmdline").read_bytes()
            except OSError:
                continue
    found = {where for where, text in texts.items() if any(secret in text for secret in secrets)}
    assert found == set()
    assert any(str(daemon.directory) in where for where in texts)
    assert len(texts) > 6
    assert sys.executable.encode() in b"".join(texts.values())
