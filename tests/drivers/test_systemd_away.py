"""A bus that is not there, says nothing or goes away, and a systemd that restarts: reported, and caught up with."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from osrdyne.errors import DriverError, is_away
from testbed.waiting import PATIENCE_SECONDS, until_async
from tests.drivers.subjects.base import listed
from tests.drivers.subjects.systemd import SystemdSubject

pytestmark = [pytest.mark.xdist_group("systemd"), pytest.mark.full]


class Relay:
    """A socket that leads to the bus, until it is cut."""

    def __init__(self, bus: str, path: Path) -> None:
        self._bus = bus.removeprefix("unix:path=")
        self._path = path
        self.address = f"unix:path={path}"
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

    async def open(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self._path)

    async def cut(self) -> None:
        assert self._server
        self._server.close()
        for writer in self._writers:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        self._writers.clear()
        await self._server.wait_closed()
        self._path.unlink(missing_ok=True)

    async def _serve(self, ours: asyncio.StreamReader, to_us: asyncio.StreamWriter) -> None:
        theirs, to_them = await asyncio.open_unix_connection(self._bus)
        self._writers += [to_us, to_them]
        await asyncio.gather(_pass_on(ours, to_them), _pass_on(theirs, to_us))


async def _pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
    target.close()


@pytest.fixture
async def relay(units: SystemdSubject, tmp_path: Path) -> AsyncIterator[Relay]:
    made = Relay(units.machine.bus, tmp_path / "bus")
    await made.open()
    yield made
    await made.cut()


async def test_a_bus_that_is_not_there_is_reported_and_used_once_it_is(units: SystemdSubject, tmp_path: Path) -> None:
    relay = Relay(units.machine.bus, tmp_path / "bus")
    units.install()
    driver = units.driver_of(dataclasses.replace(units.place, bus_address=relay.address))
    said = f"cannot reach the bus at {relay.address}: No such file or directory; start D-Bus there"
    for ask in (driver.start("a"), driver.stop("a"), driver.list(), anext(aiter(driver.changes()))):
        with pytest.raises(DriverError, match=said) as caught:
            await ask
        assert is_away(caught.value)
    await relay.open()
    await driver.start("a")
    await units.until_running(driver, "a")
    await driver.close()
    await relay.cut()


async def test_a_lost_bus_is_reported_once_and_what_was_missed_is_reported_by_the_next_listing(
    units: SystemdSubject, relay: Relay
) -> None:
    # Given a group that systemd does not restart, and a reader of changes
    units.install("Restart=no")
    driver = units.driver_of(dataclasses.replace(units.place, bus_address=relay.address))
    await units.ready(driver, "a")
    await units.ready(driver, "b")
    reading = asyncio.create_task(_first_error(driver.changes()))
    # When the bus goes, and a worker ends meanwhile
    await relay.cut()
    assert "lost the bus at" in await asyncio.wait_for(reading, PATIENCE_SECONDS)
    await units.kill("a")
    with pytest.raises(DriverError):
        await driver.list()

    async def ended() -> bool:
        return not await units.workers("a")

    await until_async(ended)
    # Then it is reported when the bus is back, the other group is as it was, and changes are heard again
    await relay.open()
    assert (await listed(driver)).keys() == {"b"}
    assert "was killed by SIGKILL" in await units.error(driver, "a")
    await units.kill("b")
    assert "was killed by SIGKILL" in await units.error(driver, "b")
    await driver.close()


async def test_a_systemd_that_restarts_keeps_every_group(units: SystemdSubject) -> None:
    driver = units.driver()
    await units.ready(driver, "a")
    before = await units.workers("a")
    reading = asyncio.create_task(_first_error(driver.changes()))
    units.machine.run("systemctl", "daemon-reexec")
    assert await asyncio.wait_for(reading, PATIENCE_SECONDS) in ("systemd left the bus", "systemd has restarted")

    async def running() -> bool:
        with contextlib.suppress(DriverError):
            await units.until_running(driver, "a")
            return True
        return False

    await until_async(running)
    assert await units.workers("a") == before
    # And its changes are heard
    await units.kill("a")
    assert "was killed by SIGKILL" in await units.error(driver, "a")


async def test_a_closed_driver_leaves_no_task_and_no_connection(units: SystemdSubject) -> None:
    before = asyncio.all_tasks()
    driver = units.driver()
    await driver.start("crash")
    await units.error(driver, "crash")
    await driver.close()
    assert asyncio.all_tasks() == before
    with pytest.raises(DriverError, match="the driver was closed"):
        await driver.list()


async def _first_error(changes: AsyncIterator[object]) -> str:
    try:
        async for _ in changes:
            pass
    except DriverError as error:
        return str(error)
    return ""
