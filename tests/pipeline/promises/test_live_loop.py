"""Days of calls on a live pool, a thousand times as fast: a change keeps its promise, and a bad one is taken back.

The delays of the daemon are a thousandth of those in the settings file that the pipeline writes, and times of events
are a thousandfold. So the commands see days, and the daemon, its driver and the workers are real. Windows by the clock
cannot be made faster, so all keys are called by timers, for which no window is recommended. A tenth of a second is here
a hundred: so timers have periods of hours, and are uneven by more than that.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from osrdyne_pipeline.source import stream
from osrdyne_pipeline.source.columns import record_batches
from osrdyne_pool import settings_file
from osrdyne_pool.settings import PoolSettings
from osrdyne_runtime.settings_text import to_toml
from testbed.broker import Broker
from testbed.foreign_client import ForeignClient
from testbed.pool import STATISTICS_INTERVAL, DaemonProcess, Pool
from testbed.waiting import until
from testbed.workers import MINIMAL
from tests.broker.test_changed_settings import CHANGED
from tests.pipeline.promises.demand import DAY, MONDAY, events, lines, moment, odd_timers, plain

SPEED = 1000.0
#: Of a day: in so much of the next one a call comes, by which a day is seen to be whole.
SURELY = 0.1
#: Days before the live week, from a replay.
HISTORY = 14
HOUR = 3600.0
#: Key -> period of its timer: most are called several times a day, and some so rarely that nothing is learnt of them.
TIMERS = {f"often-{number}": 3 * HOUR + number * 240 for number in range(60)} | {
    f"rare-{number}": 28 * HOUR + number * HOUR for number in range(10)
}
#: Of the calls of a timer, the share that is much too early or too late: as many as a nearly regular key may have.
ODD = 0.19
#: Far too short for these timers: each call is cold.
BEFORE = PoolSettings("core", unbind_delay=3000.0, stop_delay=600.0)
#: What a person gives the daemon, and not the file, on the bad day: each group is unbound after a minute.
BAD = PoolSettings("core", unbind_delay=60.0, stop_delay=15.0)
#: Starts in a few hundredths of a second, and sends the times of its events.
WORKER = [*MINIMAL[:-1], str(Path(__file__).with_name("timed_worker.py")), MINIMAL[-1]]
COMMAND = "from osrdyne_pipeline.cli import main; main()"
COLUMNS = ("key", "event", "worker_id", "request_id", "outcome", "duration_ms")


class LiveDays:
    """A live pool in fast time, and a lake of it."""

    def __init__(self, daemon: DaemonProcess, folder: Path) -> None:
        self.daemon, self.pool, self.folder = daemon, daemon.pool, folder
        self.file = folder / "settings.toml"
        self.file.write_text(to_toml({"pool": plain(BEFORE)}))
        self.taken = 0
        self._stop = threading.Event()
        #: The same timers go on: what is learnt of their first days holds for the live ones.
        calls = odd_timers(1, MONDAY - HISTORY * DAY, HISTORY + 8, TIMERS, ODD)
        self.history = [(at, key) for at, key in calls if at < MONDAY]
        self._calls = [(at - MONDAY, key) for at, key in calls if at >= MONDAY]
        self._begun = time.time()
        self._thread = threading.Thread(target=self._call)

    def begin(self) -> None:
        self._begun = time.time() + 1
        self._thread.start()

    def end(self) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _call(self) -> None:
        client = ForeignClient(self.pool.client_uri, self.pool.names.request_exchange)
        try:
            for at, key in self._calls:
                while (wait := self._begun + at / SPEED - time.time()) > 0:
                    if self._stop.wait(min(wait, 0.05)):
                        return
                    client.poll()
                client.send(key, b"x")
        finally:
            client.close()

    @property
    def now(self) -> float:
        """Seconds since the Unix epoch, in the pool's fast time."""
        return MONDAY + (time.time() - self._begun) * SPEED

    @property
    def day(self) -> float:
        """Days since the pool began."""
        return (self.now - MONDAY) / DAY

    def wait_for_day(self, number: float) -> None:
        until(lambda: self.day >= number, within=600, every=0.05, what=f"day {number}")

    @property
    def settings(self) -> PoolSettings:
        return settings_file.read_pool(self.file)

    def take(self, settings: PoolSettings) -> None:
        """Have the daemon take settings, a thousandth of each delay."""
        self.daemon.settings["pool"] |= plain(settings, 1 / SPEED)
        new = self.daemon.directory / "settings.new"
        new.write_text(to_toml(self.daemon.settings))
        new.rename(self.daemon.directory / "settings.toml")
        self.taken += 1
        until(
            lambda: sum(line["message"] == CHANGED for line in self.daemon.lines()) == self.taken,
            what="changed settings in force",
        )

    def recommend(self, *words: str) -> dict[str, Any]:
        """Take in what the stream has, and ask."""
        uri, name = self.pool.uri(self.pool.users.monitor), self.pool.names.events_stream
        file = self.folder / f"live-{self.now:.0f}.jsonl"
        file.write_text(lines(self._events(uri, name)))
        self.run("ingest", str(file))
        self.run("tables")
        return dict(json.loads(self.run("recommend", "--settings", str(self.file), "--json", *words)))

    def _events(self, uri: str, name: str) -> Iterator[dict[str, Any]]:
        held = stream.bounds(uri, name)
        assert held is not None
        for messages in stream.read(uri, name, held.first, held.end):
            assert not isinstance(messages, stream.UnreadMessage)
            for batch in record_batches(name, messages):
                for row in batch.to_pylist():
                    # An event that has no id is known by its place.
                    event_id = row["event_id"] or str(row["offset"])
                    at = round(1000 * MONDAY + (row["time_ms"] - 1000 * self._begun) * SPEED)
                    yield {**{column: row[column] for column in COLUMNS}, "event_id": event_id, "time_ms": at}

    def run(self, *words: str) -> str:
        here = ["--pool", "core", "--lake", str(self.folder / "lake")]
        # The pool comes first: what is compared are its times.
        command = ["nice", "-n", "10", sys.executable, "-c", COMMAND, *words, *here]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def live(one_broker: Broker, tmp_path: Path) -> Iterator[LiveDays]:
    vhost = "pipeline-loop"
    one_broker.management.add_vhost(vhost, one_broker.admin)
    pool = Pool.on(one_broker, vhost, unbind_delay=BEFORE.unbind_delay / SPEED, stop_delay=BEFORE.stop_delay / SPEED)
    daemon = DaemonProcess.of(pool, tmp_path / "daemon", worker=WORKER, intervals={"debounce": 0.005})
    running = LiveDays(daemon, tmp_path)
    try:
        daemon.start()
        yield running
    finally:
        running.end()
        daemon.close()
        pool.remove_users()
        one_broker.management.delete("vhosts", vhost)


def compared(answer: dict[str, Any]) -> dict[str, Any]:
    cold = answer["review"]["total"]["cold"]
    print({name: answer["review"][name] for name in ("at", "verdict", "days", "notes")}, answer["review"]["total"])
    return dict(cold)


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_a_change_of_a_live_pool_keeps_its_promise_and_a_bad_one_is_taken_back(live: LiveDays) -> None:
    # Given two weeks of history, and a live pool with the delays of before
    slow = {"statistics": SPEED * STATISTICS_INTERVAL, "start": 0.3 * SPEED}
    live.run("ingest", str(events(live.folder / "history", live.history, BEFORE, 1, **slow)))
    live.begin()
    # When what is recommended is applied
    live.wait_for_day(SURELY)
    # It is unknown when a key was called before new settings: its first call after that is cold, in any case
    first = live.recommend("--apply", "--from", moment(MONDAY + DAY))
    assert first["recommended"], first["reasons"]
    recommended = live.settings
    live.take(recommended)
    print({"taken": live.day, "overrides": len(recommended.overrides)})
    assert live.day < 0.6, "the machine is too slow for this speed"
    # Then two whole days later it has kept its promise, within 15 %
    live.wait_for_day(3 + SURELY)
    second = live.recommend()
    cold = compared(second)
    assert second["review"]["verdict"] == "kept", second["review"]
    assert 0.85 <= cold["came"] / cold["expected"] <= 1.15
    assert cold["came"] < 0.5 * cold["before"]
    # When a person lets the daemon unbind groups at once
    live.take(BAD)
    print({"bad from": live.day})
    live.wait_for_day(4 + SURELY)
    third = live.recommend("--apply", "--from", moment(live.now))
    # Then the promise is broken, and the settings of before are written and taken
    compared(third)
    assert (third["review"]["verdict"], third["goes_back"]) == ("broken", True)
    assert live.settings == BEFORE
    live.take(BEFORE)
    print({"back from": live.day})
    assert live.day < 5, "the machine is too slow for this speed"
    # And what comes then is what came before the change, within 15 %
    live.wait_for_day(6 + SURELY)
    last = live.recommend()
    cold = compared(last)
    assert (last["review"]["verdict"], last["review"]["promised"]) == ("kept", False), last["review"]
    assert 0.85 <= cold["came"] / cold["expected"] <= 1.15
