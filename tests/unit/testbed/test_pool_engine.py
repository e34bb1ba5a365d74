"""What a test's pool leaves running when it is closed: nothing, not even what is not a worker yet."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from osrdyne_pool.settings import PoolSettings
from osrdyne_pool.topology import Users
from testbed.pool import DaemonProcess, Pool
from testbed.waiting import until

NO_BROKER: Any = None


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    pool = Pool(
        NO_BROKER,
        "/",
        PoolSettings("core"),
        Users("client", "worker-of-this-test", "daemon", "monitor", "operator", "pipeline"),
        {},
    )
    made = DaemonProcess(
        pool, tmp_path, {}, module="tests.unit.testbed.test_pool_engine", arguments=[str(tmp_path / "forked")]
    )
    yield made
    made.close()


def test_a_worker_that_was_being_started_when_the_daemon_was_killed_is_ended(daemon: DaemonProcess) -> None:
    # Given a daemon that is killed between the fork of a worker and its program's begin
    daemon.start(ready=False)
    pid_file = daemon.directory / "forked"
    until(pid_file.exists, what="a forked process")
    forked = psutil.Process(int(pid_file.read_text()))
    # When the pool is closed
    daemon.close()
    # Then the worker does not come to life
    assert not forked.is_running() or forked.status() == psutil.STATUS_ZOMBIE


def stand_for_a_daemon(pid_file: Path) -> None:
    """Fork a process that takes its time to become a worker, and write its process id into a file."""
    forked = os.fork()
    if not forked:
        time.sleep(600)
        os._exit(0)
    written = pid_file.with_suffix(".tmp")
    written.write_text(str(forked))
    written.rename(pid_file)
    signal.pause()


if __name__ == "__main__":
    stand_for_a_daemon(Path(sys.argv[-1]))
