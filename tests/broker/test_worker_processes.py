"""A worker of the library as a process beside a daemon: what its handlers fork, and the threads that they leave."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from testbed.foreign_client import ForeignClient
from testbed.pool import DaemonProcess, Pool
from testbed.waiting import until
from testbed.workers import LIBRARY

MakePool = Callable[..., Pool]
MakeDaemon = Callable[..., DaemonProcess]
MakeClient = Callable[[Pool], ForeignClient]


def errors_of(daemon: DaemonProcess) -> list[str]:
    return [line["reason"] for line in daemon.lines() if line["message"] == "group failed; it is tried again"]


@pytest.mark.fast
def test_a_handler_that_forks_a_pool_of_processes_for_each_request_answers_all_of_them(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool()
    daemon = make_daemon(pool, worker=LIBRARY)
    client = make_client(pool)
    answers = client.wait(*(client.send("42", b"fork") for _ in range(15)))
    assert {(answer.status, answer.body) for answer in answers} == {("ok", b"42|fork")}
    # By one worker, which nothing has stopped
    assert errors_of(daemon) == []
    assert len(daemon.worker_pids()) == 1


@pytest.mark.fast
def test_a_library_worker_that_a_thread_keeps_ends_by_itself_and_its_key_is_served_again(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool()
    daemon = make_daemon(pool, worker=LIBRARY, environment={"RUNNER": "thread"})
    client = make_client(pool)
    assert client.ask("42", b"linger").status == "ok"
    (first,) = daemon.worker_pids()
    # When it gets a signal that is not the daemon's
    os.kill(first, signal.SIGTERM)
    # Then its process ends, although the thread does not, and it says so
    until(lambda: errors_of(daemon), what="the end of the worker")
    assert "exited with status 70" in errors_of(daemon)[0]
    assert "a thread of the user's" in "".join(file.read_text() for file in daemon.directory.rglob("*.log"))
    # And another one answers
    assert client.ask("42", b"again").status == "ok"
    assert first not in daemon.worker_pids()
