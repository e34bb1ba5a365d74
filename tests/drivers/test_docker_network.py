"""An engine that is reached over a network, which can fall silent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from osrdyne.errors import DriverError
from testbed.waiting import until_async
from tests.drivers.subjects.docker import DockerSubject

pytestmark = [pytest.mark.xdist_group("docker"), pytest.mark.full]

#: Kind of timer of a connection in /proc/net/tcp, see proc(5): the one of keep-alive probes.
KEEP_ALIVE = "02"


@contextlib.asynccontextmanager
async def over_tcp(dockerd: DockerSubject) -> AsyncIterator[int]:
    """Lets the engine be reached at a port of this machine; ends with all its connections."""
    socket = (dockerd.host or "unix:///var/run/docker.sock").removeprefix("unix://")
    tasks: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(socket)
        tasks.update(asyncio.create_task(stream) for stream in (pump(reader, back), pump(there, writer)))

    server = await asyncio.start_server(relay, "127.0.0.1")
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def timers(port: int) -> list[str]:
    """Returns the kinds of timers of this machine's connections to a port of its own."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [line[5].partition(":")[0] for line in lines if line[2].endswith(f":{port:04X}") and line[3] == "01"]


async def test_workers_are_started_listed_and_reported_over_tcp(dockerd: DockerSubject) -> None:
    async with over_tcp(dockerd) as port:
        driver = dockerd.driver_of({}, host=f"tcp://127.0.0.1:{port}")
        await dockerd.ready(driver, "a")

        # A connection that falls silent is noticed: each is probed while nothing comes
        async def probed() -> bool:
            found = await asyncio.to_thread(timers, port)
            return bool(found) and set(found) == {KEEP_ALIVE}

        await until_async(probed)
        await dockerd.kill("a")
        assert "SIGKILL" in await dockerd.error(driver, "a")
        await driver.close()


async def test_a_connection_that_is_lost_is_reported(dockerd: DockerSubject) -> None:
    async with over_tcp(dockerd) as port:
        driver = dockerd.driver_of({}, host=f"tcp://127.0.0.1:{port}")
        assert await driver.list() == []
        reading = asyncio.create_task(dockerd.error(driver, "a"))
    with pytest.raises(DriverError, match="connection to it was lost"):
        await reading
    with pytest.raises(DriverError, match=f"127.0.0.1:{port} cannot be reached: Connection refused"):
        await driver.list()
