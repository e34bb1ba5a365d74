"""What the daemon's metrics say of a real pool: how requests and workers ended, and how long requests waited."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from osrdyne_client import Client, WorkerFailed
from testbed.foreign_client import ForeignClient
from testbed.pool import DaemonProcess, Pool
from testbed.waiting import until

#: Seconds that a request waits behind another
WAIT_SECONDS = 0.3
#: It holds a request that names a file until the file is there.
WORKER = """
import os, pathlib, time
from osrdyne_worker import run

def handle(request):
    if request.body == b"die":
        os._exit(3)
    if request.body == b"fail":
        raise KeyError(9)
    while request.body and not pathlib.Path(os.fsdecode(request.body)).exists():
        time.sleep(0.01)
    return b""

run(handle)
"""


def metrics(daemon: DaemonProcess) -> dict[tuple[str, ...], float]:
    """Return the value of each series of the daemon, by its name and the values of its labels."""
    families = text_string_to_metric_families(daemon.get("/metrics"))
    return {(sample.name, *sample.labels.values()): sample.value for family in families for sample in family.samples}


@pytest.mark.fast
def test_a_pool_counts_its_causes_and_measures_what_its_callers_wait_for(
    make_pool: Callable[..., Pool],
    make_daemon: Callable[..., DaemonProcess],
    make_client: Callable[[Pool], ForeignClient],
    tmp_path: Path,
) -> None:
    pool = make_pool(delivery_limit=1)
    script, release = tmp_path / "worker.py", tmp_path / "release"
    script.write_text(WORKER)
    daemon = make_daemon(pool, worker=[sys.executable, str(script)])
    requests, queue, exits = "osrdyne_requests_total", "osrdyne_queue_seconds", "osrdyne_worker_exits_total"
    with Client(pool.client_uri, "core") as client:
        # Given a call that found no worker, one that found it busy, and one that found it free
        client.call("42", b"")
        calls = [client.submit("42", body) for body in (bytes(release), b"")]
        until(lambda: pool.depth(pool.names.request_queue("42")) == 2, what="a request behind another")
        time.sleep(WAIT_SECONDS)
        release.touch()
        for call in calls:
            call.result()
        # And one that fails, one of another client, and a cast that ends workers
        with pytest.raises(WorkerFailed):
            client.call("42", b"fail")
        assert make_client(pool).ask("42", b"").status == "ok"
        # The last events of a worker that dies are lost
        until(lambda: metrics(daemon)[requests, "ok"] + metrics(daemon)[requests, "error"] == 5, what="five ends")
        client.cast("42", b"die")
        until(lambda: metrics(daemon)[requests, "delivery_limit"] == 1, what="the end of the cast")
    until(lambda: metrics(daemon)[exits, "exit"] == 2, what="two ends of workers")
    found = metrics(daemon)
    assert found["osrdyne_cold_start_seconds_count",] == 1
    assert [found[requests, outcome] for outcome in ("ok", "error", "expired", "other")] == [4, 1, 0, 0]
    assert (found[f"{queue}_count",], found[f"{queue}_sum",] >= WAIT_SECONDS) == (3, True)
    assert (found[exits, "signal"], found[exits, "no-start"]) == (0, 0)
