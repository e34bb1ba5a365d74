"""Sessions end and begin: what the log says of a lost broker, and who leads afterwards."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from faults.proxy import Proxy
from testbed.broker import Broker
from testbed.command_line import osrdyne
from testbed.foreign_client import ForeignClient
from testbed.pool import DaemonProcess, Pool
from testbed.waiting import until
from testbed.workers import MINIMAL

pytestmark = pytest.mark.both_versions

MakePool = Callable[..., Pool]
MakeDaemon = Callable[..., DaemonProcess]
MakeClient = Callable[[Pool], ForeignClient]


@pytest.fixture
def outage(private_broker: Broker, tmp_path: Path) -> Iterator[tuple[Broker, Pool, DaemonProcess]]:
    private_broker.management.add_vhost("sessions", private_broker.admin)
    pool = Pool.on(private_broker, "sessions")
    daemon = DaemonProcess.of(pool, tmp_path / "daemon", worker=MINIMAL).start()
    yield private_broker, pool, daemon
    daemon.close()


def warnings(daemon: DaemonProcess) -> list[dict[str, Any]]:
    return [line for line in daemon.lines() if line["level"] in ("warning", "error", "critical")]


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_lost_broker_is_one_plain_line_and_no_traceback(outage: tuple[Broker, Pool, DaemonProcess], end: str) -> None:
    broker, pool, daemon = outage
    client = ForeignClient(pool.client_uri, pool.names.request_exchange)
    client.wait(client.send("42", b"x"))
    client.close()
    if end == "kill" and broker.version == "4.0":
        # What was declared a moment ago is not on its disk yet: that would be another test.
        broker.rabbitmqctl("eval", "mnesia:sync_log().")
    getattr(broker, end)()
    until(lambda: any("nothing listens there" in str(line.get("reason")) for line in warnings(daemon)), what="a retry")
    broker.start()
    daemon.wait_for("leading")

    assert "Traceback" not in daemon.log()
    assert all(line["level"] == "warning" for line in warnings(daemon)), warnings(daemon)
    # A killed broker brings its streams back a little later than the rest, and does not list them until then
    again = ("nothing listens there", "the broker has its bindings and does not list it")
    lost = [line for line in warnings(daemon) if not any(reason in str(line.get("reason")) for reason in again)]
    # The management API may be gone before the connection is, and a broker that starts has more than one reason
    lost = [line for line in lost if not line["message"].startswith("the management API")]
    lost = [line for line in lost if line["message"] != "the broker can be used again"]
    assert {line["message"] for line in lost} == {"the broker cannot be used; trying again"}
    assert len({line["reason"] for line in lost}) == len(lost)
    assert "the broker can be used again" in {line["message"] for line in warnings(daemon)}


def test_a_session_that_ends_while_orphans_keep_coming_is_one_plain_line(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    # Given orphans that circle, because another program owns the queue of their key
    pool = make_pool()
    arguments = {"x-queue-type": "classic"}
    pool.broker.management.put("queues", pool.vhost, "core-req-42", body={"durable": True, "arguments": arguments})
    daemon = make_daemon(pool, worker=MINIMAL)
    client = make_client(pool)
    for _ in range(300):
        client.send("42", b"x")
    # When the lock is deleted again and again, while the connection lives
    for number in range(1, 3):
        pool.broker.rabbitmqctl("delete_queue", "--vhost", pool.vhost, pool.names.leader_queue)
        until(partial(has_lost, daemon, number), what="the loss of the lock")
        daemon.wait_for("leading")
    assert "Traceback" not in daemon.log()
    assert {line["level"] for line in warnings(daemon)} == {"warning"}
    assert any("the lock is lost" in str(line.get("reason")) for line in warnings(daemon))


def has_lost(daemon: DaemonProcess, times: int) -> bool:
    return daemon.sessions_ended() >= times


def test_a_standby_says_so_and_leads_once_the_leader_was_killed(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool()
    leader = make_daemon(pool, worker=MINIMAL)
    client = make_client(pool)
    client.wait(client.send("42", b"x"))
    standby = make_daemon(pool, start=False)
    standby.start(ready=False)
    standby.wait_for("standby")
    # It is healthy and knows no keys; its answer refers to the daemon that does
    done = osrdyne("status", "--url", standby.url)
    assert (done.code, done.err) == (0, "")
    assert "standby (another daemon leads and knows the keys; this one takes over when that ends)" in done.out.decode()
    assert "ask the daemon that leads about keys" in done.out.decode()

    leader.stop(signal.SIGKILL)
    standby.wait_for("leading")
    assert client.wait(client.send("42", b"y"))[0].body == b"42|y"
    assert standby.key("42") is not None
    done = osrdyne("status", "--url", leader.url)
    assert done.code == 2
    assert "no daemon answers at" in done.line


def test_a_standby_leads_once_the_leaders_connection_is_silent_and_only_one_of_them_does(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool()
    with Proxy(pool.broker.amqp_port, "leader") as proxy:
        leader = make_daemon(pool, worker=MINIMAL, start=False, broker={"heartbeat": 1.0})
        file = leader.directory / "amqp.uri"
        file.write_text(file.read_text().replace(f":{pool.broker.amqp_port}/", f":{proxy.ports['leader']}/"))
        leader.start()
        standby = make_daemon(pool, worker=MINIMAL, start=False, broker={"heartbeat": 1.0})
        standby.start(ready=False)
        standby.wait_for("standby")
        # When nothing comes through any more, in either direction, and no connection is closed
        proxy.silence("leader")
        until(lambda: no_sign_of_life(leader), what="the leader's own notice")
        # Then requests are served by whichever has the lock now, and the other stands by
        client = make_client(pool)
        assert client.wait(client.send("42", b"x"))[0].body == b"42|x"
        until(
            lambda: {leader.status()["state"], standby.status()["state"]} == {"leading", "standby"}, what="one leader"
        )


def no_sign_of_life(daemon: DaemonProcess) -> bool:
    return any("no sign of life from the broker" in str(line.get("reason")) for line in warnings(daemon))
