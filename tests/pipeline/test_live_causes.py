"""A real pool in which workers of one key cannot start, and a handler raises: tables, report and bill say so."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from osrdyne_calls.errors import CallError
from osrdyne_client import Client
from osrdyne_pipeline.commands import PIPELINE
from osrdyne_pipeline.lake import Lake
from osrdyne_pipeline.small.engine import SmallEngine
from osrdyne_pipeline.source import stream
from osrdyne_protocol import events, headers
from osrdyne_protocol.event_batches import unpack
from testbed.broker import Broker
from testbed.foreign_client import ForeignClient
from testbed.pool import DaemonProcess, Pool
from testbed.waiting import until

#: Its worker ends before it says `started` for the key XX; for others it raises where it is asked to.
PROGRAM = """
import os
if os.environ["WORKER_KEY"] == "XX":
    open("data/XX.json")
from osrdyne_worker import run
def handle(request):
    if request.body == b"bad":
        raise KeyError("a secret")
    return request.body
run(handle)
"""


@pytest.fixture
def daemon(one_broker: Broker, tmp_path: Path) -> Iterator[DaemonProcess]:
    broker = one_broker
    vhost = "pipeline-causes"
    broker.management.add_vhost(vhost, broker.admin)
    pool = Pool.on(broker, vhost, start_failures=3)
    running = DaemonProcess.of(pool, tmp_path / "daemon", worker=[sys.executable, "-c", PROGRAM])
    try:
        running.start()
        yield running
    finally:
        running.close()
        pool.remove_users()
        broker.management.delete("vhosts", vhost)


def pipeline(*words: str) -> str:
    done = CliRunner().invoke(PIPELINE, list(words), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def events_in_stream(pool: Pool) -> Counter[tuple[str | bytes, str | None]]:
    """How often each event of each key is in the stream."""
    uri, name = pool.uri(pool.users.monitor), pool.names.events_stream
    held = stream.bounds(uri, name)
    found: Counter[tuple[str | bytes, str | None]] = Counter()
    for batch in stream.read(uri, name, held.first, held.end) if held is not None else ():
        assert not isinstance(batch, stream.UnreadMessage)
        for message in batch:
            for given in unpack(message.headers, message.body):
                found[message.routing_key, headers.text(given.get(headers.X_EVENT))] += 1
    return found


def test_a_pool_with_a_key_that_cannot_start_is_advised_by_its_cause_and_billed_by_caller(
    daemon: DaemonProcess, tmp_path: Path
) -> None:
    pool = daemon.pool
    # Given a key whose workers cannot start, and one that is called by our client and by one that names no user
    with Client(pool.client_uri, "core") as client:
        with pytest.raises(CallError):
            client.call("XX", b"x", timeout=60.0)
        assert client.call("LAX", b"cold", timeout=60.0).body == b"cold"
        assert client.call("LAX", b"warm", timeout=60.0).body == b"warm"
        with pytest.raises(CallError):
            client.call("LAX", b"bad", timeout=60.0)
    foreign = ForeignClient(pool.client_uri, pool.names.request_exchange)
    try:
        assert foreign.ask("LAX", b"unnamed").body == b"unnamed"
    finally:
        foreign.close()
    until(lambda: events_in_stream(pool)["LAX", events.FINISHED] >= 4, every=0.3, what="the ends of four requests")
    until(lambda: events_in_stream(pool)["XX", events.WORKER_ENDED] >= 3, every=0.3, what="three ends of workers")
    # When the pipeline has read the events
    address = tmp_path / "monitor.uri"
    address.write_text(pool.uri(pool.users.monitor))
    here = ("--pool", "core", "--lake", str(tmp_path / "lake"))
    pipeline("ingest", "--uri-file", str(address), *here)
    pipeline("tables", *here)
    # Then the causes are what happened
    with SmallEngine.open("1g") as engine:
        engine.show(Lake(tmp_path / "lake", "core"), "gold/causes", "gold/starts")
        causes = engine.rows("from causes where how <> 'stopped' order by key, what")
        starts = {row["key"]: row for row in engine.rows("from starts")}
    assert [(row["key"], row["what"], row["how"], row["error"], row["began"]) for row in causes] == [
        ("LAX", "handler-error", "error", "KeyError", None),
        ("XX", "worker-ended", "exit 1", "FileNotFoundError", False),
    ]
    assert causes[1]["example"] == "FileNotFoundError: [Errno 2] No such file or directory: 'data/XX.json'"
    assert Path(causes[1]["log"]).is_file()
    assert starts["XX"]["failed_since"] == causes[1]["times"] >= 3
    assert (starts["XX"]["started"], starts["LAX"]["started"], starts["LAX"]["failed"]) == (0, 1, 0)
    # And the report says the cause, and no secret
    pipeline("report", "--output", str(tmp_path / "page.html"), *here)
    page = (tmp_path / "page.html").read_text()
    assert "XX: every start fails, FileNotFoundError" in page
    assert "LAX: its handler fails, KeyError" in page
    assert "Make starts of XX faster" not in page
    assert "a secret" not in page
    # And the bill has the user that the broker checked, also of the request that the daemon forwarded
    bill = json.loads(pipeline("bill", "--json", *here))
    lax = {
        share["caller"]: share["requests"]
        for share in bill["shares"]
        if (share["key"], share["kind"]) == ("LAX", "caller")
    }
    assert lax == {pool.users.client: 3, None: 1}
    parts = sum(share["worker_seconds"] for share in bill["callers"])
    assert parts == pytest.approx(bill["total"]["worker_seconds"], rel=0.001)
