"""Many keys at once: every cold key is answered, and what the machine is given to do at once stays bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from osrdyne.settings.daemon import IntervalSettings
from testbed.broker import Broker
from testbed.foreign_client import ForeignClient
from testbed.pool import DaemonProcess, Pool
from testbed.waiting import until
from testbed.workers import MINIMAL
from tests.conftest import Vhost

KEYS = 1000
#: The defaults of broker (milliseconds) and daemon. With a thousand queues, the short intervals of other tests would be
#: more than half of the broker's work.
BROKER_INTERVAL = 5000
INTERVALS = {"broker": {"statistics_interval": 7.5}, "intervals": IntervalSettings().model_dump()}


@pytest.fixture
def vhost(broker_version: str) -> Iterator[Vhost]:
    """On a broker of its own: deleting a thousand quorum queues keeps a shared one from its other tests for minutes."""
    with Broker(broker_version, interval=BROKER_INTERVAL) as own:
        yield Vhost(own, "/")


@pytest.mark.full
@pytest.mark.timeout(1200)
@pytest.mark.xdist_group("crowd")
def test_a_thousand_cold_keys_asked_at_once_are_all_answered(
    make_pool: Callable[..., Pool],
    make_daemon: Callable[..., DaemonProcess],
    make_client: Callable[[Pool], ForeignClient],
) -> None:
    # As long as a slow machine may take for all of them: what is asked is that none is lost
    pool = make_pool(orphan_ttl=3600.0)
    daemon = make_daemon(pool, worker=MINIMAL, **INTERVALS)
    client = make_client(pool)
    ids = [client.send(f"key-{number}", b"x") for number in range(KEYS)]
    answers = client.wait(*ids, timeout=900)
    right = [f"key-{number}|x".encode() for number in range(KEYS)]
    # Those that are not right, and what was said of them
    assert [answer for answer, body in zip(answers, right, strict=True) if answer.body != body] == []
    # One worker each, started once
    started = [line["key"] for line in daemon.lines() if line["message"] == "group started"]
    assert len(started) == len(set(started)) == KEYS
    until(lambda: len(daemon.status()["keys"]) == KEYS, what="all keys in the status")
    # Warm, they all answer again
    again = [client.send(f"key-{number}", b"y") for number in range(KEYS)]
    assert {answer.status for answer in client.wait(*again, timeout=120)} == {"ok"}
