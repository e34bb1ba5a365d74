"""The whole daemon with workers under systemd: real requests through a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from testbed.foreign_client import ForeignClient
from testbed.pool import Pool
from testbed.waiting import until
from tests.conftest import Vhost
from tests.drivers.subjects.systemd import SystemdSubject
from tests.drivers.subjects.systemd_pool import UnitPool

pytestmark = [pytest.mark.xdist_group("systemd"), pytest.mark.full]


@pytest.fixture
def make(
    units: SystemdSubject, one_vhost: Vhost, tmp_path: Path
) -> Iterator[Callable[..., tuple[UnitPool, ForeignClient]]]:
    """Makes the pool, with other settings, and a client."""
    made: list[tuple[UnitPool, ForeignClient]] = []

    def of(**settings: Any) -> tuple[UnitPool, ForeignClient]:
        pool = Pool.on(one_vhost.broker, one_vhost.name, name=units.pool, instance="one", **settings)
        made.append((UnitPool(units, pool, tmp_path), ForeignClient(pool.client_uri, pool.names.request_exchange)))
        return made[-1]

    yield of
    for units_of_pool, client in made:
        client.close()
        units_of_pool.close()


async def test_a_cold_start_is_answered_by_a_unit_that_outlives_the_daemon(
    make: Callable[..., tuple[UnitPool, ForeignClient]],
) -> None:
    pool, client = make()
    # Given a key that no worker serves
    daemon = pool.daemon()
    assert client.ask("LAX", b"hello").body.endswith(b"|hello")
    [served_by] = pool.workers("LAX")
    # When the daemon is followed by another, after SIGKILL
    daemon.stop(9)
    daemon = pool.daemon()
    # Then the same worker answers, and another key is a cold start still
    assert client.ask("LAX", b"again").body.endswith(b"|again")
    assert pool.workers("LAX") == [served_by]
    assert client.ask("é/ 50%", b"hello").body.startswith("é/ 50%|".encode())
    found = daemon.key("LAX")
    assert found is not None
    assert (found["state"], found["workers"]) == ("ready", 1)


async def test_a_changed_unit_rolls_a_group_after_the_request_in_hand_under_the_same_daemon(
    make: Callable[..., tuple[UnitPool, ForeignClient]],
) -> None:
    # Given a group with a request in hand
    pool, client = make()
    pool.daemon()
    client.ask("LAX")
    [before] = pool.workers("LAX")
    number = _pid_inside(before)
    busy = client.send("LAX", b"sleep:3")
    until(lambda: pool.pool.depth(pool.pool.names.request_queue("LAX")) == 1)
    # When infrastructure code changes the unit
    pool.declare(version="2")
    # Then that request is answered once, by the worker that had it, and the next by another
    assert client.wait(busy)[0].body == f"LAX|{number}|sleep:3".encode()
    until(lambda: before not in pool.workers("LAX") and pool.workers("LAX"), what="a worker of the new template")
    assert client.ask("LAX", b"next").body.endswith(b"|next")
    assert len(client.answers[busy]) == 1


async def test_idle_groups_are_stopped_and_their_queues_deleted(
    make: Callable[..., tuple[UnitPool, ForeignClient]],
) -> None:
    pool, client = make(unbind_delay=1.0, stop_delay=1.0)
    pool.daemon()
    client.ask("LAX")
    until(lambda: not pool.workers("LAX"), what="the worker to end")
    until(lambda: pool.pool.names.request_queue("LAX") not in pool.pool.queues(), what="the queue to be deleted")
    until(lambda: not list(pool.units.files.iterdir()), what="the file to be removed")
    # And the next request is a cold start
    assert client.ask("LAX", b"again").body.endswith(b"|again")


async def test_a_worker_that_crashes_is_restarted_by_systemd_and_its_error_is_logged(
    make: Callable[..., tuple[UnitPool, ForeignClient]],
) -> None:
    pool, client = make(delivery_limit=1)
    daemon = pool.daemon()
    client.ask("LAX")
    # A request that kills each worker that takes it is answered once it has done so too often
    assert client.ask("LAX", b"crash").status == "delivery_limit"
    # In the log: the status shows it only until the worker that systemd starts says that it is there
    until(lambda: "ended with status 3; systemd starts it again" in daemon.log(), what="the error of the worker")
    assert client.ask("LAX", b"well again").status == "ok"


def _pid_inside(process: psutil.Process) -> int:
    """Returns the number that a process has on its own machine."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("NSpid:")).split()[-1])
