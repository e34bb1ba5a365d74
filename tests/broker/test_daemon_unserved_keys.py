"""A worker whose process runs and that consumes nothing: its key is served again, and is not ready until then."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress

import pytest

from osrdyne_protocol.worker_environment import WorkerEnvironment
from testbed.foreign_client import ForeignClient
from testbed.pool import DaemonProcess, Pool
from testbed.waiting import PATIENCE_SECONDS, until
from testbed.workers import SCRIPTED

MakePool = Callable[..., Pool]
MakeDaemon = Callable[..., DaemonProcess]
MakeClient = Callable[[Pool], ForeignClient]


def state_of(daemon: DaemonProcess) -> object:
    found = daemon.key("42")
    return found and found["state"]


def errors_of(daemon: DaemonProcess) -> list[str]:
    return [line["reason"] for line in daemon.lines() if line["message"] == "group failed; it is tried again"]


def test_a_worker_that_stops_and_stays_is_restarted_and_its_key_is_not_ready_meanwhile(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool()
    daemon = make_daemon(pool, worker=SCRIPTED, limits={"start_grace": 10.0}, intervals={"engine_listing": 1.0})
    client = make_client(pool)
    assert client.ask("42", b"linger").status == "ok"
    until(lambda: state_of(daemon) == "ready", what="a key that is ready")
    (first,) = daemon.worker_pids()
    # When it stops to consume, and a thread keeps its process
    os.kill(first, signal.SIGTERM)
    until(lambda: state_of(daemon) == "unserved", what="a key that is not ready")
    assert 'osrdyne_keys{state="unserved"} 1.0' in daemon.get("/metrics")
    assert first in daemon.worker_pids()
    # Then it is restarted, although no request waits, and the reason is shown
    until(lambda: errors_of(daemon), what="the restart")
    assert errors_of(daemon)[0].startswith("stuck: it runs, and nothing has consumed its queue for ")
    until(lambda: first not in daemon.worker_pids(), what="the end of the worker")
    assert client.ask("42", b"again").status == "ok"
    until(lambda: state_of(daemon) == "ready", what="a key that is ready again")
    until(lambda: (daemon.key("42") or {})["last_error"] is None, what="no error")
    assert len(errors_of(daemon)) == 1


@pytest.mark.both_versions
@pytest.mark.full
def test_a_request_that_the_broker_leaves_with_hung_workers_ends_in_poison(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool(delivery_limit=1, consumer_timeout=2.0)
    # 4.3 does so by chance, and by this variable; 4.0 looks a minute after the worker came
    daemon = make_daemon(pool, worker=SCRIPTED, environment={"HOLDS_FOR_MS": "600000"}, limits={"start_grace": 3.0})
    answer = make_client(pool).ask("42", b"hang", timeout=90)
    assert answer.status == "delivery_limit"
    assert len(errors_of(daemon)) == 2, daemon.log()
    assert all(error.startswith("stuck: its workers have answered no request for ") for error in errors_of(daemon))


def test_a_worker_that_the_daemon_does_not_run_is_shown_as_gone_and_not_replaced(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool()
    daemon = make_daemon(pool, limits={"start_grace": 1.0})
    client = make_client(pool)
    first = client.send("42", b"first")
    until(lambda: state_of(daemon) == "starting", what="the key")
    variables = WorkerEnvironment(
        "by-hand",
        "42",
        pool.names.pool,
        pool.names.request_queue("42"),
        pool.names.activity_exchange,
        pool.uri(pool.users.worker),
    ).to_environ()
    worker = subprocess.Popen(SCRIPTED, env={"PATH": os.environ["PATH"], **variables})
    try:
        assert client.wait(first)[0].status == "ok"
        until(lambda: state_of(daemon) == "ready", what="a key that is ready")
        worker.send_signal(signal.SIGTERM)
        worker.wait(PATIENCE_SECONDS)
        until(lambda: state_of(daemon) == "unserved", what="a key that is not ready")
        assert errors_of(daemon) == []
    finally:
        with suppress(ProcessLookupError):
            worker.kill()
        worker.wait()
