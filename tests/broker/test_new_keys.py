"""New keys on a real broker: who may wake how many, what others notice of it, and what the broker itself limits."""

from __future__ import annotations

import json
from collections.abc import Callable

import pika
import pika.exceptions
import pytest

from osrdyne_client import Client
from osrdyne_client.errors import Rejected, Throttled
from osrdyne_pool.broker import management_json
from osrdyne_pool.drift import drift
from osrdyne_pool.lint import Finding
from osrdyne_pool.topology import Topology, topology
from osrdyne_protocol import headers
from testbed.command_line import osrdyne
from testbed.foreign_client import ForeignClient
from testbed.pool import DaemonProcess, Pool
from testbed.waiting import until
from testbed.workers import MINIMAL

MakePool = Callable[..., Pool]
MakeDaemon = Callable[..., DaemonProcess]
MakeClient = Callable[[Pool], ForeignClient]


def request_queues(pool: Pool) -> set[str]:
    return {queue for queue in pool.queues() if queue.startswith(pool.names.request_queue_prefix)}


@pytest.mark.fast
def test_a_user_beyond_its_budget_hears_when_to_try_again_while_others_wake_keys(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool()
    daemon = make_daemon(pool, worker=MINIMAL, limits={"new_keys": 2, "new_key_interval": 600.0})
    with Client(pool.client_uri, "core") as client:
        for key in ("a", "b", "a"):
            assert client.call(key, b"x").body
        with pytest.raises(Throttled) as refused:
            client.call("c", b"x")
        assert refused.value.retry_after is not None
        assert 0 < refused.value.retry_after <= 600
        # This client does not say who it is, so it has another budget.
        assert make_client(pool).ask("d", b"x").status == "ok"
        assert client.call("b", b"x").body
    assert request_queues(pool) == {pool.names.request_queue(key) for key in ("a", "b", "d")}
    assert daemon.status()["refused"] == {"budget": 1}
    assert 'osrdyne_wakes_refused_total{reason="budget"} 1.0' in daemon.get("/metrics")


def test_a_request_that_comes_back_costs_no_second_key_and_its_note_cannot_be_forged(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool()
    daemon = make_daemon(pool, limits={"new_keys": 1, "new_key_interval": 600.0})
    client = make_client(pool)
    forged = {headers.X_USER: pool.users.daemon, headers.X_LET_IN: True}
    client.send("a", b"x", user_id=pool.users.client, headers=forged)
    queue = pool.names.request_queue("a")
    until(lambda: pool.depth(queue))
    with pika.BlockingConnection(pika.URLParameters(pool.uri(pool.users.worker))) as as_worker:
        got = as_worker.channel().basic_get(queue, auto_ack=True)[1]
    noted = {name: got.headers[name] for name in forged}
    assert (got.user_id, noted) == (
        pool.users.daemon,
        {headers.X_USER: pool.users.client, headers.X_LET_IN: True},
    )
    # It comes back for a key that nothing wants, and is let in. The same from its client is one key too many.
    with pika.BlockingConnection(pika.URLParameters(pool.uri(pool.users.daemon))) as as_daemon:
        as_daemon.channel().basic_publish(pool.names.request_exchange, "b", b"x", got)
    until(lambda: pool.names.request_queue("b") in pool.queues())
    assert client.ask("c", b"x", user_id=pool.users.client, headers=noted).status == "throttled"
    assert daemon.status()["refused"] == {"budget": 1}


def test_a_key_that_the_pool_leaves_out_is_rejected_and_makes_no_queue(
    make_pool: MakePool, make_daemon: MakeDaemon
) -> None:
    pool = make_pool(keys="[a-z]")
    make_daemon(pool, worker=MINIMAL)
    with Client(pool.client_uri, "core") as client:
        with pytest.raises(Rejected, match="keys"):
            client.call("aa", b"x")
        assert client.call("a", b"x").body
    assert request_queues(pool) == {pool.names.request_queue("a")}


def test_what_the_broker_limits_is_what_is_declared_and_lint_says_what_is_missing(
    make_pool: MakePool, make_daemon: MakeDaemon
) -> None:
    pool = make_pool(limits={"groups": 30, "client_connections": 2, "worker_connections": 5})
    daemon = make_daemon(pool, start=False)
    daemon.start()
    settings = daemon.directory / "settings.toml"
    assert osrdyne("lint", "--settings", str(settings), "--live").code == 0
    # The broker keeps a client from more connections than it may have.
    connections = [pika.BlockingConnection(pika.URLParameters(pool.client_uri)) for _ in range(2)]
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        pika.BlockingConnection(pika.URLParameters(pool.client_uri))
    for connection in connections:
        connection.close()
    # A limit that is taken away, and one that is lowered, are found, by the daemon's own user.
    api = pool.broker.management
    api.delete("vhost-limits", pool.vhost, "max-connections")
    api.call("PUT", "vhost-limits", pool.vhost, "max-queues", body={"value": 7})
    found = osrdyne("lint", "--settings", str(settings), "--live", "--json")
    findings = {finding["object"]: finding["rule"] for finding in json.loads(found.out)["findings"]}
    assert findings == {
        "limit max-connections of the virtual host": "missing",
        "limit max-queues of the virtual host": "differs",
    }


def test_limits_of_users_are_compared_where_users_are(make_pool: MakePool) -> None:
    pool = make_pool()
    client = pool.users.client
    pool.broker.management.delete("user-limits", client, "max-channels")

    declared = topology(pool.settings, pool.users)
    (found,) = [finding for finding in live_drift(pool, declared) if client in finding.object]

    assert (found.rule, found.object) == ("differs", f"user {client}")


def live_drift(pool: Pool, declared: Topology) -> list[Finding]:
    api = pool.broker.management
    kinds = ("exchanges", "queues", "bindings", "policies", "operator-policies", "vhost-limits")
    listed = {kind: api.get(kind, pool.vhost) for kind in kinds}
    listed |= {"users": api.get("users"), "permissions": api.get("vhosts", pool.vhost, "permissions")}
    return drift(declared, management_json.read(listed), with_users=True)


def test_a_key_for_which_the_virtual_host_has_no_room_says_so_and_gets_its_queue_once_there_is(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool()
    daemon = make_daemon(pool, worker=MINIMAL)
    client = make_client(pool)
    api = pool.broker.management
    api.call("PUT", "vhost-limits", pool.vhost, "max-queues", body={"value": len(pool.queues())})
    waiting = client.send("42", b"x")
    until(
        lambda: any("queue limit" in str(key["last_error"]) for key in daemon.status()["keys"]),
        what="the reason of the broker",
    )
    api.call("PUT", "vhost-limits", pool.vhost, "max-queues", body={"value": 1000})
    (answer,) = client.wait(waiting)
    assert answer.status == "ok"


def test_with_all_groups_in_use_a_new_key_is_refused_and_there_is_never_one_more_queue(
    make_pool: MakePool, make_daemon: MakeDaemon
) -> None:
    pool = make_pool(limits={"groups": 2})
    daemon = make_daemon(pool, worker=MINIMAL)
    with Client(pool.client_uri, "core") as client:
        for key in ("a", "b"):
            client.call(key, b"x")
        with pytest.raises(Throttled) as refused:
            client.call("c", b"x")
        assert refused.value.retry_after == 30.0
        assert client.call("a", b"x").body
    assert len(request_queues(pool)) == 2
    assert daemon.status()["refused"] == {"groups": 1}
