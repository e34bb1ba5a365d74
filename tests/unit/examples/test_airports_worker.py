"""The example's worker while it is not a worker yet."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from examples.airports import cache, flights
from osrdyne_protocol.worker_environment import WorkerEnvironment
from testbed.waiting import until

ROOT = Path(__file__).parents[3]
ENVIRONMENT = WorkerEnvironment("w1", "LAX", "airports", "airports-req-LAX", "airports-activity-xchg", "amqp://u:p@h")


def test_a_stop_while_it_loads_its_data_ends_it_also_where_nothing_else_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a worker whose data keep it waiting
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    data = Path(cache.folder()) / flights.WEATHER_FILE
    data.parent.mkdir(parents=True)
    os.mkfifo(data)
    worker = subprocess.Popen(
        [sys.executable, "-m", "examples.airports.worker"], cwd=ROOT, env={**os.environ, **ENVIRONMENT.to_environ()}
    )

    def reader() -> int | None:
        with contextlib.suppress(OSError):  # no reader yet
            return os.open(data, os.O_WRONLY | os.O_NONBLOCK)
        return None

    try:
        held = until(reader, what="a worker that loads")
        # When it is asked to stop, then it ends by itself: as the first process of its container it must
        worker.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            worker.wait(10)
        if worker.poll() is None:
            # Python runs a handler after the call that it is in: a signal just before a read begins does not end that.
            worker.terminate()
        assert worker.wait(60) == 0
        os.close(held)
    finally:
        worker.kill()
        worker.wait()
