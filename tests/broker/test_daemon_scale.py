"""Many keys at once: every cold key is answered, and what the machine is given to do at once stays bounded."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.broker.conftest import MINIMAL
from tests.conftest import Vhost
from tests.engines.broker import Broker
from tests.engines.foreign_client import ForeignClient
from tests.engines.pool import DaemonProcess, Pool
from tests.engines.waiting import until

KEYS = 1000


@pytest.fixture
def vhost(private_broker: Broker) -> Vhost:
    """On a broker of its own: deleting a thousand quorum queues keeps a shared one from its other tests for minutes."""
    private_broker.start()
    return Vhost(private_broker, "/")


@pytest.mark.timeout(600)
@pytest.mark.xdist_group("crowd")
def test_a_thousand_cold_keys_asked_at_once_are_all_answered(
    make_pool: Callable[..., Pool],
    make_daemon: Callable[..., DaemonProcess],
    make_client: Callable[[Pool], ForeignClient],
) -> None:
    pool = make_pool()
    daemon = make_daemon(pool, worker=MINIMAL)
    client = make_client(pool)
    ids = [client.send(f"key-{number}", b"x") for number in range(KEYS)]
    answers = client.wait(*ids, timeout=300)
    assert [answer.body for answer in answers] == [f"key-{number}|x".encode() for number in range(KEYS)]
    # One worker each, started once
    started = [line["key"] for line in daemon.lines() if line["message"] == "group started"]
    assert len(started) == len(set(started)) == KEYS
    until(lambda: len(daemon.status()["keys"]) == KEYS, what="all keys in the status")
    # Warm, they all answer again
    again = [client.send(f"key-{number}", b"y") for number in range(KEYS)]
    assert {answer.status for answer in client.wait(*again, timeout=120)} == {"ok"}
