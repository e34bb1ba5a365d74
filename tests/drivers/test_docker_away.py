"""An engine that is away, frozen or started again: calls report it and wait, and what was stopped stays so."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from osrdyne.drivers.base import GroupState
from osrdyne.drivers.docker import engine
from osrdyne.errors import DriverError, is_away
from testbed.own_dockerd import OwnDockerd
from testbed.waiting import until_async
from tests.drivers.subjects.base import listed
from tests.drivers.subjects.docker import DockerSubject, Engine

pytestmark = [
    pytest.mark.xdist_group("docker"),
    pytest.mark.full,
    # docker's library leaves a socket to the garbage collector when it cannot connect.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def own() -> Iterator[OwnDockerd]:
    """An engine that these tests may treat badly; each leaves it running."""
    with OwnDockerd() as dockerd:
        yield dockerd


@pytest.fixture
async def machine(own: OwnDockerd, tmp_path: Path) -> AsyncIterator[DockerSubject]:
    made = DockerSubject(Engine(own.docker, own.docker.worker()), tmp_path)
    yield made
    await made.clean_up()
    gc.collect()  # while the filter above holds


async def until_followed(machine: DockerSubject) -> None:
    async def answers() -> bool:
        return await asyncio.to_thread(machine.docker.answers)

    await until_async(answers)


async def test_an_engine_that_is_not_there_is_reported_with_what_to_do(machine: DockerSubject) -> None:
    driver = machine.driver_of({}, host=f"unix://{machine.directory}/none.sock")
    for call in (driver.list(), driver.start("a"), driver.stop("a"), anext(driver.changes())):
        with pytest.raises(
            DriverError, match=r"none\.sock cannot be reached: No such file or directory; is it running"
        ) as caught:
            await call
        assert is_away(caught.value)


async def test_an_engine_that_is_killed_is_reported_and_followed_again(own: OwnDockerd, machine: DockerSubject) -> None:
    # Given a worker, and a reader of changes
    driver = machine.driver()
    await machine.ready(driver, "a")
    before = await machine.workers("a")
    reading = asyncio.create_task(machine.error(driver, "a"))
    # When the engine is killed
    own.signal(signal.SIGKILL)
    # Then the reader gets an error, and so does every call
    with pytest.raises(DriverError, match="events have ended"):
        await reading
    with pytest.raises(DriverError, match="cannot be reached"):
        await driver.list()
    # And when it is back, it has ended what it found running, and that is reported as any end is
    own.start()
    assert await driver.list() == []
    assert "worker ended" in await machine.error(driver, "a")
    await machine.ready(driver, "a")
    assert await machine.workers("a") != before


async def test_a_restart_of_the_engine_brings_back_workers_but_none_that_was_to_stop(
    own: OwnDockerd, machine: DockerSubject
) -> None:
    # Given a worker, and another that does not heed its stop
    driver = machine.driver_of({"StopTimeout": 3})
    await machine.ready(driver, "stays")
    await machine.ready(driver, "deaf")
    before = await machine.workers("stays")
    await driver.stop("deaf")
    assert (await listed(driver))["deaf"].state is GroupState.STOPPING
    # When the engine is started again, in good order
    own.signal(signal.SIGTERM)
    own.start()
    # Then the one is back, and the other is not, and leaves nothing
    await machine.until_running(driver, "stays")
    assert await machine.workers("stays") != before
    assert (await listed(driver)).keys() == {"stays"}

    async def removed() -> bool:
        return await machine.containers("deaf") == []

    await until_async(removed)
    # And ends are reported as before
    await machine.kill("stays")

    async def end_is_reported() -> bool:
        with contextlib.suppress(DriverError):  # of the engine's end, which comes first
            return "SIGKILL" in await machine.error(driver, "stays")
        return False

    await until_async(end_is_reported)


async def test_a_frozen_engine_is_given_up_and_serves_again_when_it_thaws(
    own: OwnDockerd, machine: DockerSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a worker that was started without haste, and a driver that waits for no more than 4 s
    former = machine.driver()
    await machine.ready(former, "a")
    await former.close()
    monkeypatch.setattr(engine, "TIMEOUT_SECONDS", 4.0)
    driver = machine.driver()
    assert (await listed(driver)).keys() == {"a"}
    own.signal(signal.SIGSTOP)
    try:
        for call in (driver.list(), driver.start("b"), driver.stop("a")):
            with pytest.raises(DriverError, match="did not answer within 4 s; look at its log and its load"):
                await call
    finally:
        own.signal(signal.SIGCONT)
    await until_followed(machine)
    monkeypatch.undo()
    await driver.stop("a")
    await machine.until_gone(driver, "a")
