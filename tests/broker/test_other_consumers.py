"""A program that consumes a queue of the daemon gets no request while the daemon takes them, and is named."""

from __future__ import annotations

import json
from collections.abc import Callable

import pika
import pytest

from testbed.command_line import osrdyne
from testbed.foreign_client import ForeignClient
from testbed.pool import DaemonProcess, Pool
from testbed.waiting import until
from testbed.workers import MINIMAL

pytestmark = pytest.mark.both_versions

MakePool = Callable[..., Pool]
MakeDaemon = Callable[..., DaemonProcess]
MakeClient = Callable[[Pool], ForeignClient]


def test_another_consumer_gets_no_request_and_is_named_everywhere_until_it_ends(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool()
    daemon = make_daemon(pool, worker=MINIMAL)
    client = make_client(pool)
    queue = pool.names.orphan_queue
    lint = ("lint", "--settings", str(daemon.directory / "settings.toml"), "--live", "--json")
    taken: list[bytes] = []

    def warnings() -> list[str]:
        return [
            warning
            for warning in daemon.status()["warnings"]
            if warning.startswith(f"{queue} is consumed by 2 connections (")
        ]

    def consumed() -> bool:
        found = pool.broker.management.get("consumers", pool.vhost)
        return any(consumer["queue"]["name"] == queue for consumer in found)

    # A daemon leads a moment before it consumes, and until then the other one is alone.
    until(consumed, what="the daemon to consume orphans")
    with pika.BlockingConnection(pika.URLParameters(pool.broker.amqp_uri(vhost=pool.vhost))) as other:
        channel = other.channel()
        channel.basic_consume(queue, lambda _c, _m, _p, body: taken.append(body), auto_ack=True)

        answers = client.wait(*(client.send(f"key-{number}", b"x") for number in range(6)))
        other.process_data_events(0.1)
        assert [answer.status for answer in answers] == ["ok"] * 6
        assert taken == []

        until(lambda: bool(warnings()), what="a warning in the status")
        assert f'osrdyne_queues_with_other_consumers{{queue="{queue}"}} 1.0' in daemon.get("/metrics")
        assert any(line["message"] == "a queue of the daemon has other consumers" for line in daemon.lines())
        found = json.loads(osrdyne(*lint).out)["findings"]
        assert [(finding["rule"], finding["object"]) for finding in found] == [("other-consumers", f"queue {queue}")]
        assert "warning: " in osrdyne("status", "--url", daemon.url).out.decode()

    until(lambda: not warnings(), what="no warning any more")
    assert "osrdyne_queues_with_other_consumers{" not in daemon.get("/metrics")
    assert any(line["message"] == "a queue of the daemon has no other consumers any more" for line in daemon.lines())
    assert osrdyne(*lint).code == 0
