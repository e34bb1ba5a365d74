"""A real daemon with real workers sends the same events for the same calls as `osrdyne replay`, event for event.

What a replay takes for given is measured: when each call came, and how long each start took. Each teller's events are
compared in their order; between two tellers (say, the forwarder and a worker) chance decides.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator

import pika
import pytest

from osrdyne.commands.replay.simulated_pool import Circumstances, PastCall, PastEvent, Replay
from osrdyne.lifetime.window_rules import Schedule
from osrdyne_pool.settings import Delays
from osrdyne_protocol import headers
from osrdyne_protocol.event_batches import unpack
from testbed.foreign_client import ForeignClient
from testbed.pool import STATISTICS_INTERVAL, DaemonProcess, Pool
from testbed.waiting import until
from testbed.workers import LIBRARY

#: Seconds. A start may take longer than all of them; the key then steps down meanwhile, in the replay, too.
UNBIND_SECONDS, STOP_SECONDS, DEBOUNCE_SECONDS = 2.0, 3.0, 0.2
#: After its last activity, a key is made active again; until then its queue is long deleted.
AGAIN = 15.0
ALWAYS = "mon,tue,wed,thu,fri,sat,sun 00:00-24:00"
#: Which program sends which event.
TELLERS = {
    "orphan-seen": "forwarder",
    "forwarded": "forwarder",
    "queue-ready": "queue loop",
    "unbound": "queue loop",
    "queue-deleted": "queue loop",
    "group-started": "group loop",
    "group-stopped": "group loop",
}


class Witness:
    """Takes in every event of a pool, and keeps when each call was made."""

    def __init__(self, pool: Pool, client: ForeignClient) -> None:
        self._connection = pika.BlockingConnection(pika.URLParameters(pool.broker.amqp_uri(vhost=pool.vhost)))
        self._channel = self._connection.channel()
        self._queue = self._channel.queue_declare("", exclusive=True).method.queue
        self._channel.queue_bind(self._queue, pool.names.activity_exchange)
        self._client = client
        self.calls: list[PastCall] = []
        self.reported: list[tuple[str, str, int]] = []

    def call(self, key: str) -> None:
        """Call a key and wait for the answer."""
        self.calls.append(PastCall(time.time_ns() // 1_000_000, key, 1))
        assert self._client.ask(key, b"hello").status == "ok"

    def wait_for(self, key: str, event: str, number: int = 1) -> None:
        """Wait until an event of a key was sent so many times."""

        def seen() -> bool:
            self._take_in()
            return sum(event_[:2] == (key, event) for event_ in self.reported) >= number

        until(seen, every=0.01, what=f"{event} of {key}, {number} times")

    def _take_in(self) -> None:
        while True:
            found, properties, body = self._channel.basic_get(self._queue, auto_ack=True)
            if found is None:
                return
            for given in unpack(properties.headers, body):
                self.reported.append((found.routing_key, given[headers.X_EVENT], given[headers.X_EVENT_TIME]))

    def starts(self, key: str) -> list[int]:
        """How long each start of a group took, in milliseconds."""
        began, served = (
            [event_[2] for event_ in self.reported if event_[:2] == (key, event)]
            for event in ("group-started", "started")
        )
        return [max(1, after - before) for before, after in zip(began, served, strict=True)]

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def witness(
    make_pool: Callable[..., Pool],
    make_daemon: Callable[..., DaemonProcess],
    make_client: Callable[[Pool], ForeignClient],
) -> Iterator[Witness]:
    """Sees a pool from before its daemon starts. `warm` has a window that is always open, `again` a span."""
    pool = make_pool(unbind_delay=UNBIND_SECONDS, stop_delay=STOP_SECONDS)
    witness = Witness(pool, make_client(pool))
    daemon = make_daemon(pool, worker=LIBRARY, start=False, intervals={"debounce": DEBOUNCE_SECONDS})
    daemon.settings["pool"]["overrides"] = {"warm": {"warm": [ALWAYS]}, "again": {"prewarm": [[AGAIN, AGAIN + 60]]}}
    daemon.start()
    yield witness
    witness.close()


def stories(reported: list[tuple[str, str]]) -> dict[tuple[str, str], list[str]]:
    """Split the events by key and by sender."""
    result: dict[tuple[str, str], list[str]] = defaultdict(list)
    for key, event in reported:
        if event == "worker-ended":
            continue  # the replay knows no engine
        result[key, TELLERS.get(event, "worker")].append(event)
    return result


def replayed(calls: list[PastCall], starts: list[int], end: str, *, warm: bool = False) -> list[tuple[str, str]]:
    """What the replay says of the key of the last call, up to an event."""
    takes = iter(starts)
    reported: Iterator[PastEvent] = Replay(
        Circumstances(
            delays=lambda key: Delays(UNBIND_SECONDS * 1000, STOP_SECONDS * 1000),
            warm=Schedule({"warm": Delays(UNBIND_SECONDS, STOP_SECONDS, (ALWAYS,))} if warm else {}),
            debounce=round(DEBOUNCE_SECONDS * 1000),
            statistics_interval=round(STATISTICS_INTERVAL * 1000),
            start=lambda: next(takes),
            identity=lambda: "",
        )
    ).run(calls)
    result: list[tuple[str, str]] = []
    for event in reported:
        if event.key == calls[-1].key:
            result.append((event.key, event.event))
            if event.event == end:
                break
    return result


@pytest.mark.full
def test_a_daemon_and_the_replay_report_the_same_events_for_the_same_calls(witness: Witness) -> None:
    # When a key is called cold, warm, and after it was unbound
    witness.call("often")
    witness.call("often")
    witness.wait_for("often", "unbound")
    witness.call("often")
    # And another one once, while a third has no calls and is kept warm
    witness.call("once")
    witness.wait_for("warm", "started")
    witness.call("warm")
    witness.wait_for("warm", "finished")
    for key in ("often", "once"):
        witness.wait_for(key, "queue-deleted")
    # Then the replay's events do not show that there was no pool
    for key in ("often", "once"):
        mine = [call for call in witness.calls if call.key == key]
        real = stories([event_[:2] for event_ in witness.reported if event_[0] == key])
        assert real == stories(replayed(mine, witness.starts(key), "queue-deleted"))
    real = stories([event[:2] for event in witness.reported if event[0] == "warm"])
    called = next(call for call in witness.calls if call.key == "warm")
    before = PastCall(called.time_ms - 10_000, "other")
    assert real == stories(replayed([before, called], [1, 1], "finished", warm=True))
    # And the third group ran before it was called
    assert "orphan-seen" not in real["warm", "forwarder"]


@pytest.mark.full
def test_a_key_that_was_let_go_runs_again_in_its_span_before_it_is_called(witness: Witness) -> None:
    witness.call("again")
    witness.wait_for("again", "queue-deleted")
    # When nothing but time passes, its worker starts again, and the next call finds it
    witness.wait_for("again", "started", 2)
    witness.call("again")
    witness.wait_for("again", "finished", 2)

    assert [event for key, event, _ in witness.reported if (key, event) == ("again", "orphan-seen")] == ["orphan-seen"]
