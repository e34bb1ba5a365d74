"""Broker and daemon go away under load: nothing confirmed is lost, and no worker restarts."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from osrdyne_client import AsyncClient, Reply
from testbed.broker import Broker
from testbed.pool import DaemonProcess, Pool
from testbed.waiting import until
from testbed.workers import MINIMAL

pytestmark = pytest.mark.both_versions

KEYS = [f"key-{number}" for number in range(8)]
#: Calls that each caller makes once the outage is over.
CALLS_AFTER = 20


@pytest.fixture
def pool(private_broker: Broker) -> Pool:
    private_broker.management.add_vhost("outage", private_broker.admin)
    return Pool.on(private_broker, "outage")


@pytest.fixture
def daemon(pool: Pool, tmp_path: Path) -> Iterator[DaemonProcess]:
    process = DaemonProcess.of(pool, tmp_path / "daemon", worker=MINIMAL).start()
    yield process
    process.close()


async def load_during(pool: Pool, outage: Callable[[], None]) -> list[Reply | BaseException]:
    """Keep 16 calls outstanding before, during and after `outage`, to warm and to cold keys; return how each ended."""
    ended: list[Reply | BaseException] = []
    over = asyncio.Event()
    async with AsyncClient(pool.client_uri, pool.names.pool, slots=64, timeout=90) as client:

        async def caller(number: int) -> None:
            left = CALLS_AFTER
            turn = 0
            while left:
                turn += 1
                left -= over.is_set()
                # Every caller asks a key of its own for the first time now and then, also during the outage.
                key = f"cold-{number}-{turn // 50}" if turn % 50 == 0 else KEYS[(number + turn) % len(KEYS)]
                try:
                    ended.append(await client.call(key, f"{number}-{turn}".encode()))
                except Exception as error:  # noqa: BLE001 - how it ended is what is looked at
                    ended.append(error)
                    return

        callers = [asyncio.ensure_future(caller(number)) for number in range(16)]
        await asyncio.gather(*(client.call(key, b"warm") for key in KEYS))
        await asyncio.to_thread(outage)
        over.set()
        await asyncio.gather(*callers)
    return ended


def all_answered(ended: list[Reply | BaseException]) -> bool:
    assert [result for result in ended if not isinstance(result, Reply)] == []
    return len(ended) > 16 * CALLS_AFTER


def test_a_broker_stopped_and_started_under_load_loses_no_call_and_restarts_no_worker(
    pool: Pool, daemon: DaemonProcess, private_broker: Broker
) -> None:
    def outage() -> None:
        workers.update(daemon.worker_pids())
        private_broker.restart()

    workers: set[int] = set()
    assert all_answered(asyncio.run(load_during(pool, outage)))
    daemon.wait_for("leading")
    assert len(workers) >= len(KEYS)
    assert workers <= set(daemon.worker_pids())
    assert {key["key"] for key in daemon.status()["keys"]} >= set(KEYS)


def test_a_daemon_killed_under_load_loses_no_call_and_restarts_no_worker(pool: Pool, daemon: DaemonProcess) -> None:
    def outage() -> None:
        workers.update(daemon.worker_pids())
        for _ in range(3):
            daemon.stop(signal.SIGKILL)
            daemon.start()

    workers: set[int] = set()
    assert all_answered(asyncio.run(load_during(pool, outage)))
    assert len(workers) >= len(KEYS)
    assert workers <= set(daemon.worker_pids())


def test_requests_made_while_no_daemon_runs_are_answered_when_one_does(pool: Pool, daemon: DaemonProcess) -> None:
    daemon.stop()

    async def ask() -> Reply:
        async with AsyncClient(pool.client_uri, pool.names.pool, timeout=60) as client:
            call = asyncio.ensure_future(client.call("later", b"x"))
            await asyncio.to_thread(until, lambda: pool.depth(pool.names.orphan_queue) == 1, what="the orphan")
            await asyncio.to_thread(daemon.start)
            return await call

    assert asyncio.run(ask()).body == b"later|x"


def test_a_daemon_started_before_its_broker_waits_for_it(pool: Pool, private_broker: Broker, tmp_path: Path) -> None:
    private_broker.stop()
    daemon = DaemonProcess.of(pool, tmp_path / "early", worker=MINIMAL)
    try:
        daemon.start(ready=False)
        daemon.wait_for("waiting")
        assert "nothing listens there" in daemon.status()["detail"]
        private_broker.start()
        daemon.wait_for("leading")
    finally:
        daemon.close()
