"""A small real pool, its events through the command, its tables: they say what the clients saw."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from osrdyne_pipeline.lake import Lake
from osrdyne_pipeline.source import stream
from osrdyne_protocol import events, headers
from osrdyne_protocol.event_batches import unpack
from testbed.broker import Broker
from testbed.foreign_client import ForeignClient
from testbed.pool import DaemonProcess, Pool
from testbed.waiting import until
from testbed.workers import LIBRARY
from tests.pipeline.test_cli import run


@pytest.fixture
def daemon(one_broker: Broker, tmp_path: Path) -> Iterator[DaemonProcess]:
    broker = one_broker
    vhost = "pipeline-live"
    broker.management.add_vhost(vhost, broker.admin)
    pool = Pool.on(broker, vhost)
    running = DaemonProcess.of(pool, tmp_path / "daemon", worker=LIBRARY)
    try:
        running.start()
        yield running
    finally:
        running.close()
        pool.remove_users()
        broker.management.delete("vhosts", vhost)


@pytest.mark.full
def test_the_tables_of_a_live_pool_say_what_its_clients_saw(
    daemon: DaemonProcess, spark: SparkSession, tmp_path: Path
) -> None:
    seen = call(daemon.pool)
    uri_file = tmp_path / "events.uri"
    uri_file.write_text(daemon.pool.uri(daemon.pool.users.monitor))
    until(lambda: ends(daemon.pool) >= len(seen), every=0.3, what="events of every request's end")
    here = ("--pool", "core", "--lake", tmp_path / "lake")

    ingested = json.loads(run("ingest", "--uri-file", uri_file, *here, "--json").stdout)
    made = json.loads(run("tables", *here, "--json").stdout)

    assert ingested["rejects"] == 0
    assert made["rows"]["silver/requests"] == len(seen)
    requests = Lake(tmp_path / "lake", "core").read(spark, "silver/requests").collect()
    assert {(row["key"], row["request_id"]): (row["cold"], row["outcome"]) for row in requests} == seen
    for row in requests:
        parts = (row["orphan_ms"], row["start_ms"], row["queue_ms"], row["run_ms"])
        assert row["done_ms"] - row["seen_ms"] == row["total_ms"] == sum(parts)
    lives = Lake(tmp_path / "lake", "core").read(spark, "silver/lives").collect()
    assert sorted(row["key"] for row in lives) == ["LAX", "SFO", "ÅÖ <x>"]
    assert sum(row["requests"] for row in lives) == len(seen)


def call(pool: Pool) -> dict[tuple[str, str], tuple[bool, str]]:
    """Ask a dozen times; return for each key and request whether it was cold, and how it ended."""
    seen = {}
    client = ForeignClient(pool.client_uri, pool.names.request_exchange)
    try:
        for key in ("LAX", "SFO", "ÅÖ <x>"):
            for number, body in enumerate((b"a", b"error", b"b", b"reject")):
                sent = client.send(key, body)
                (answer,) = client.wait(sent)
                assert answer.status is not None
                seen[key, sent] = (number == 0, answer.status)
    finally:
        client.close()
    assert {status for _, status in seen.values()} == {"ok", "error", "rejected"}
    return seen


def ends(pool: Pool) -> int:
    """How many requests have an end in the stream."""
    uri, name = pool.uri(pool.users.monitor), pool.names.events_stream
    held = stream.bounds(uri, name)
    if held is None:
        return 0
    found = set()
    for batch in stream.read(uri, name, held.first, held.end):
        assert not isinstance(batch, stream.UnreadMessage)
        for message in batch:
            for given in unpack(message.headers, message.body):
                if headers.text(given.get(headers.X_EVENT)) in (events.FINISHED, events.DEAD_LETTERED):
                    found.add(headers.text(given.get(headers.X_REQUEST_ID)))
    return len(found)
