"""Queues that a real broker lost: what the daemon and the command say of them, and that what they say mends them."""

from __future__ import annotations

import json
import urllib.error
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from osrdyne_pool.topology import request_queue_arguments
from osrdyne_runtime.settings_text import to_toml
from testbed.command_line import osrdyne
from testbed.foreign_client import ForeignClient
from testbed.lost_queue import forget_counts, is_lost, lose, lose_stream, mend
from testbed.pool import DaemonProcess, Pool
from testbed.waiting import until
from tests.conftest import Vhost

MakeDaemon = Callable[..., DaemonProcess]
#: The daemon looks as often as this, in seconds; once a minute by default.
LOOK: dict[str, Any] = {"intervals": {"topology_check": 0.5}}


@pytest.fixture
def pool(losing_vhost: Vhost) -> Iterator[Pool]:
    made = Pool.on(losing_vhost.broker, losing_vhost.name)
    yield made
    made.remove_users()


def readiness(daemon: DaemonProcess) -> tuple[int, str]:
    try:
        return 200, daemon.get("/readyz")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def lines(daemon: DaemonProcess, message: str) -> list[str]:
    return [line["queue"] for line in daemon.lines() if line["message"] == message]


def lost_ones(daemon: DaemonProcess) -> dict[str, str]:
    try:
        return dict(daemon.status()["static_queues_lost"])
    except OSError:
        return {}


@pytest.mark.full
def test_a_daemon_waits_for_a_lost_orphan_queue_says_so_and_begins_once_it_is_mended(
    pool: Pool, make_daemon: MakeDaemon
) -> None:
    # Given a pool whose orphan queue is lost
    lose(pool.broker, pool.vhost, "core-orphan")
    # When a daemon starts
    daemon = make_daemon(pool, start=False, **LOOK).start(ready=False)
    until(lambda: lost_ones(daemon), what="the lost queue in the status")
    # Then it says so everywhere
    assert lost_ones(daemon).keys() == {"core-orphan"}
    code, reason = readiness(daemon)
    assert code == 503
    assert reason.startswith("waiting: queue core-orphan: the broker lost it")
    assert 'osrdyne_static_queues_lost{queue="core-orphan"} 1.0' in daemon.get("/metrics")
    shown = osrdyne("status", "--url", daemon.url)
    assert shown.code == 1
    assert "why: queue core-orphan: the broker lost it when it was killed" in shown.out.decode()
    found = json.loads(osrdyne("status", "--url", daemon.url, "--json").out)
    assert found["ready"] is False
    assert found["static_queues_lost"].keys() == {"core-orphan"}
    # And what it says mends the queue, and the daemon goes on by itself
    mend(pool.broker, reason)
    daemon.wait_for("leading")
    assert readiness(daemon) == (200, "ready\n")
    assert "osrdyne_static_queues_lost{" not in daemon.get("/metrics")
    assert lines(daemon, "a static queue is lost; a person has to mend it") == ["core-orphan"]
    assert lines(daemon, "a static queue that was lost works again") == ["core-orphan"]
    client = ForeignClient(pool.client_uri, pool.names.request_exchange)
    try:
        client.send("42", b"x")
        until(lambda: daemon.key("42"), what="the key of an orphan")
    finally:
        client.close()


@pytest.mark.full
def test_a_queue_that_is_lost_while_the_daemon_acts_is_noticed_and_so_is_its_mending(
    pool: Pool, make_daemon: MakeDaemon
) -> None:
    daemon = make_daemon(pool, **LOOK)
    lose(pool.broker, pool.vhost, "core-poison")
    until(lambda: lost_ones(daemon), what="the lost queue in the status")

    code, reason = readiness(daemon)
    assert (code, daemon.status()["state"]) == (503, "leading")
    assert reason.startswith("leading: queue core-poison: the broker lost it")

    mend(pool.broker, reason)
    until(lambda: readiness(daemon)[0] == 200, what="readiness")
    assert lost_ones(daemon) == {}


@pytest.mark.full
def test_lint_names_lost_queues_and_streams_with_their_mend_and_no_other(pool: Pool, make_daemon: MakeDaemon) -> None:
    # Given a lost static queue and a lost request queue, each beside one that works
    for key in ("42", "43"):
        body = {"durable": True, "arguments": request_queue_arguments(key)}
        pool.broker.management.put("queues", pool.vhost, f"core-req-{key}", body=body)
    lose(pool.broker, pool.vhost, "core-dl", "core-req-42")
    lose_stream(pool.broker, pool.vhost, "core-events")
    forget_counts(pool.broker, pool.vhost, "core-req-42")
    daemon = make_daemon(pool, start=False)
    settings = daemon.directory / "settings.toml"
    settings.write_text(to_toml(daemon.settings))
    words = ("lint", "--settings", str(settings), "--live")

    # Then both are found
    done = osrdyne(*words, "--json")

    assert done.code == 1
    found = {(finding["rule"], finding["object"]): finding["problem"] for finding in json.loads(done.out)["findings"]}
    assert found.keys() == {("lost", f"queue {name}") for name in ("core-dl", "core-req-42", "core-events")}
    assert "the daemon that leads deletes it and declares it again by itself" in found["lost", "queue core-req-42"]
    assert "osrdyne_mend_lost_queues=true" in found["lost", "queue core-dl"]
    assert "rabbit_stream_coordinator:new_stream" in found["lost", "queue core-events"]
    # And the queues are mended by what it says
    quorum = ("core-dl", "core-req-42")
    for name in quorum:
        mend(pool.broker, found["lost", f"queue {name}"])
    until(lambda: not any(is_lost(pool.broker.management, pool.vhost, queue) for queue in quorum), what="their leaders")
    left = json.loads(osrdyne(*words, "--json").out)["findings"]
    assert [finding["object"] for finding in left] == ["queue core-events"]
