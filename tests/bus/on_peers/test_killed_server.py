"""A server is a process that is killed: RabbitMQ gives what it had begun to the next one."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import steps
from osrdyne_bus import Target
from osrdyne_bus.aio import AsyncBusClient
from testbed import proton
from testbed.waiting import PATIENCE_SECONDS, until_async
from tests.bus.on_peers.conftest import OpenBus
from tests.conftest import Vhost

pytestmark = pytest.mark.both_versions

MAPS = Target("maps")
SERVER = [sys.executable, "-m", "testbed.bus_server"]
Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A file that gets the names of servers, in the order in which their handlers began."""
    made = tmp_path / "begun"
    made.touch()
    return made


def names(begun: Path) -> list[str]:
    return begun.read_text().split()


@pytest.fixture
def start(vhost: Vhost, begun: Path) -> Iterator[Start]:
    """Starts servers, and leaves none running."""
    started: list[subprocess.Popen[bytes]] = []

    def one(name: str, **variables: str) -> subprocess.Popen[bytes]:
        given = {"BUS": vhost.amqp_uri(), "SERVER": name, "BEGUN": str(begun), "PYTHONPATH": str(proton.folder())}
        started.append(subprocess.Popen(SERVER, cwd=steps.ROOT, env=steps.environment(**given, **variables)))
        return started[-1]

    yield one
    for process in started:
        process.kill()
        process.wait()


async def test_what_a_killed_server_had_begun_is_answered_by_the_next_one(
    start: Start, begun: Path, open_bus: OpenBus, vhost: Vhost
) -> None:
    bus = await open_bus()
    client = AsyncBusClient(bus)
    first = start("first", HANGS="yes")
    management = vhost.broker.management
    await until_async(lambda: management.queue(vhost.name, "unicast.osrdyne.maps") is not None)
    calls = [asyncio.create_task(client.call(MAPS, "work", timeout=PATIENCE_SECONDS)) for _ in range(5)]
    await until_async(lambda: names(begun) == ["first"] * 5)

    first.send_signal(signal.SIGKILL)
    first.wait()
    second = start("second")

    assert [answer.body for answer in await asyncio.gather(*calls)] == [b"second"] * 5
    assert names(begun) == ["first"] * 5 + ["second"] * 5
    assert second.poll() is None
