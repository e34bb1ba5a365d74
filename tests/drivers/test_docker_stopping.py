"""Stopping containers: gracefully, once, by whichever daemon, and none of another key's business."""

from __future__ import annotations

import asyncio
import gc
import time

import pytest

from osrdyne.drivers.base import GroupState
from osrdyne.drivers.docker import facts
from osrdyne.drivers.docker.engine import EngineRefused
from osrdyne.drivers.docker.template import KEY
from osrdyne_protocol import names
from testbed.waiting import until_async
from tests.drivers.subjects.base import listed
from tests.drivers.subjects.docker import DockerSubject

pytestmark = [pytest.mark.xdist_group("docker"), pytest.mark.full]


async def signals(dockerd: DockerSubject, container: str) -> list[str]:
    """Returns the numbers of the signals that the engine sent a container."""
    kills = ["--filter", f"container={container}", "--filter", "event=kill"]
    shown = ["--format", "{{.Actor.Attributes.signal}}"]
    # The command counts in whole seconds.
    return (await dockerd.run("events", "--since", "1h", "--until", f"{time.time() + 1:.0f}", *kills, *shown)).split()


async def rename(dockerd: DockerSubject, key: str) -> str:
    """Does what a stop does first, and no more, as a daemon that ends then; returns the container's id."""
    [container] = await dockerd.containers(key)
    name = names.engine_name(dockerd.pool, "one", key)
    await dockerd.run("rename", container["Id"], facts.stopping_name(name, container["Id"]))
    return str(container["Id"])


async def test_what_does_not_end_is_killed_after_the_grace_and_reported(dockerd: DockerSubject) -> None:
    driver = dockerd.driver_of({"StopTimeout": 2})
    await dockerd.ready(driver, "deaf")
    [container] = await dockerd.containers("deaf")
    began = asyncio.get_running_loop().time()
    await driver.stop("deaf")
    assert (await listed(driver))["deaf"].state is GroupState.STOPPING
    assert "did not end within 2 s of being asked to and was killed" in await dockerd.error(driver, "deaf")
    assert asyncio.get_running_loop().time() - began >= 2
    assert await signals(dockerd, container["Id"]) == ["15", "9"]
    await dockerd.until_removed("deaf")


async def test_a_stop_that_takes_long_holds_up_nothing(dockerd: DockerSubject) -> None:
    driver = dockerd.driver()
    await dockerd.ready(driver, "deaf")
    # None of these waits for its end
    await driver.stop("deaf")
    await driver.start("other")
    assert (await listed(driver))["deaf"].state is GroupState.STOPPING


async def test_the_next_daemon_lists_what_is_stopping_and_sends_no_second_signal(dockerd: DockerSubject) -> None:
    former = dockerd.driver()
    await dockerd.ready(former, "deaf")
    [container] = await dockerd.containers("deaf")
    await former.stop("deaf")
    await former.close()
    driver = dockerd.driver()
    assert (await listed(driver))["deaf"].state is GroupState.STOPPING
    await driver.stop("deaf")
    await driver.stop("deaf")
    assert (await listed(driver))["deaf"].state is GroupState.STOPPING
    assert await signals(dockerd, container["Id"]) == ["15"]


async def test_a_stop_that_a_daemon_did_not_see_through_is_by_the_next_ones_listing(dockerd: DockerSubject) -> None:
    former = dockerd.driver()
    await dockerd.ready(former, "a")
    await former.close()
    container = await rename(dockerd, "a")
    driver = dockerd.driver()
    assert (await listed(driver))["a"].state is GroupState.STOPPING
    await dockerd.until_removed("a")
    assert await signals(dockerd, container) == ["15"]


async def test_or_by_its_stop(dockerd: DockerSubject) -> None:
    former = dockerd.driver()
    await dockerd.ready(former, "a")
    await former.close()
    container = await rename(dockerd, "a")
    driver = dockerd.driver()
    await driver.stop("a")
    await dockerd.until_removed("a")
    assert await signals(dockerd, container) == ["15"]


async def test_a_container_that_stopped_while_no_daemon_ran_is_removed(dockerd: DockerSubject) -> None:
    former = dockerd.driver()
    await dockerd.ready(former, "busy")
    await former.stop("busy")
    await former.close()

    async def ended() -> bool:
        return [container["State"]["Status"] for container in await dockerd.containers("busy")] == ["exited"]

    await until_async(ended)
    driver = dockerd.driver()
    assert await driver.list() == []
    await dockerd.until_removed("busy")


async def test_a_worker_that_waits_for_its_restart_is_stopped_too(dockerd: DockerSubject) -> None:
    driver = dockerd.driver()
    await driver.start("crash")

    async def waits() -> bool:
        return [container["State"]["Status"] for container in await dockerd.containers("crash")] == ["restarting"]

    await until_async(waits)
    await driver.stop("crash")
    await dockerd.until_gone(driver, "crash")
    await dockerd.until_removed("crash")


async def test_a_worker_that_the_engine_has_just_started_again_is_stopped_too(
    dockerd: DockerSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = dockerd.driver()
    await dockerd.ready(driver, "a")
    # The engine refused so to one in seventy stops that came around a restart
    refusals = [EngineRefused("the Docker engine refuses it (404): sandbox 81581c7c not found")]
    rename = driver._engine.rename

    async def refuse_once(container_id: str, name: str) -> None:
        if refusals:
            raise refusals.pop()
        await rename(container_id, name)

    monkeypatch.setattr(driver._engine, "rename", refuse_once)
    await driver.stop("a")
    await dockerd.until_gone(driver, "a")
    assert not refusals


async def test_a_worker_that_cannot_be_marked_as_stopping_is_not_asked_to_stop(
    dockerd: DockerSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = dockerd.driver()
    await dockerd.ready(driver, "a")
    [container] = await dockerd.containers("a")

    async def refuse(*_: str) -> None:
        raise EngineRefused("the Docker engine refuses it (500): no")

    with monkeypatch.context() as patched:
        patched.setattr(driver._engine, "rename", refuse)
        with pytest.raises(EngineRefused, match="500"):
            await driver.stop("a")
    assert await signals(dockerd, container["Id"]) == []
    assert (await listed(driver))["a"].state is GroupState.RUNNING
    await driver.stop("a")
    await dockerd.until_gone(driver, "a")


async def test_a_stop_signal_that_comes_before_the_worker_listens_ends_it_all_the_same(dockerd: DockerSubject) -> None:
    # As one that still loads what its key needs
    driver = dockerd.driver_of({"Entrypoint": ["python3", "-c", "import time; time.sleep(600)"]})
    await driver.start("a")
    await driver.stop("a")
    await dockerd.until_gone(driver, "a")


async def test_a_stop_right_after_the_start_is_not_lost_while_the_init_takes_no_signal_yet(
    dockerd: DockerSubject,
) -> None:
    # So little of a processor that the stop comes first; a lost one would cost the whole grace, half an hour
    keys = [f"k{number}" for number in range(6)]
    driver = dockerd.driver_of({"HostConfig": {"NanoCpus": 20_000_000}})
    for key in keys:
        await driver.start(key)
        await driver.stop(key)
    await dockerd.until_gone(driver, *keys)


async def test_a_paused_worker_can_be_stopped(dockerd: DockerSubject) -> None:
    driver = dockerd.driver()
    await dockerd.ready(driver, "a")
    [container] = await dockerd.containers("a")
    await dockerd.run("pause", container["Id"])
    assert (await listed(driver))["a"].state is GroupState.RUNNING
    await driver.stop("a")
    await dockerd.until_gone(driver, "a")


async def test_a_driver_that_is_closed_as_a_worker_ends_drops_what_it_has_not_begun(dockerd: DockerSubject) -> None:
    driver = dockerd.driver()
    await dockerd.ready(driver, "a")
    [container] = await dockerd.containers("a")
    attributes = {KEY: "a", "name": names.engine_name(dockerd.pool, "one", "a"), "exitCode": "1"}
    event = {"Action": "die", "Actor": {"ID": container["Id"], "Attributes": attributes}}
    driver._on_event(event)
    await driver.close()
    driver._on_event(event)  # one that was on its way
    assert not driver._tasks
    gc.collect()  # warns of a coroutine that was never awaited, which fails the test
    assert len(await dockerd.containers("a")) == 1


async def test_nameless_volumes_go_with_their_container_and_named_ones_stay(dockerd: DockerSubject) -> None:
    named = f"{dockerd.pool}-kept"
    volumes = [{"Type": "volume", "Target": "/scratch"}, {"Type": "volume", "Source": named, "Target": "/kept"}]
    driver = dockerd.driver_of({"HostConfig": {"Mounts": volumes}})
    await driver.start("a")
    [container] = await dockerd.containers("a")
    mounted = {mount["Name"] for mount in container["Mounts"] if mount["Type"] == "volume"}
    assert len(mounted) == 2
    await driver.stop("a")
    await dockerd.until_removed("a")
    left = mounted & set((await dockerd.run("volume", "ls", "--quiet")).split())
    await dockerd.run("volume", "rm", named)
    assert left == {named}
