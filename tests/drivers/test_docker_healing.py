"""Containers that end or change by themselves: reported, healed by the engine or started again, and cleaned up."""

from __future__ import annotations

import asyncio

import pytest

from osrdyne.drivers.base import GroupState
from osrdyne.drivers.docker.template import LOG_LIMIT
from osrdyne.errors import DriverError
from osrdyne_protocol import names
from testbed.waiting import until_async
from tests.drivers.subjects.base import PASSWORD, is_empty, listed
from tests.drivers.subjects.docker import DockerSubject

pytestmark = [pytest.mark.xdist_group("docker"), pytest.mark.full]

#: The engine restarts nothing.
NEVER = {"HostConfig": {"RestartPolicy": {"Name": "no"}}}


async def test_the_engine_brings_a_worker_back_in_the_same_container(dockerd: DockerSubject) -> None:
    driver = dockerd.driver()
    await dockerd.ready(driver, "a")
    [before] = await dockerd.containers("a")
    await dockerd.kill("a")
    assert "worker ended by SIGKILL (status 137)" in await dockerd.error(driver, "a")
    await dockerd.until_running(driver, "a")
    [after] = await dockerd.containers("a")
    assert (after["Id"], after["RestartCount"]) == (before["Id"], 1)


async def test_an_end_is_reported_with_status_and_last_line_but_without_the_password(dockerd: DockerSubject) -> None:
    driver = dockerd.driver_of(NEVER)
    await driver.start("crash")
    error = await dockerd.error(driver, "crash")
    assert error.startswith("worker ended with status 3 after ")
    assert ": cannot reach amqp://worker:***@" in error
    assert PASSWORD not in error
    await dockerd.until_removed("crash")


async def test_a_command_that_is_not_there_is_reported(dockerd: DockerSubject) -> None:
    driver = dockerd.driver_of({"Entrypoint": ["/no/such/program"]})
    await driver.start("a")
    error = await dockerd.error(driver, "a")
    assert "ended with status 127" in error
    assert "/no/such/program" in error


async def test_every_end_of_a_worker_that_crashes_again_is_reported(dockerd: DockerSubject) -> None:
    driver = dockerd.driver()
    await driver.start("crash")
    for _ in range(3):
        assert "status 3" in await dockerd.error(driver, "crash")
    assert (await listed(driver)).keys() == {"crash"}
    await driver.stop("crash")
    await dockerd.until_gone(driver, "crash")
    await dockerd.until_removed("crash")


async def test_a_container_that_a_person_removes_is_reported_and_started_again(dockerd: DockerSubject) -> None:
    driver = dockerd.driver()
    await dockerd.ready(driver, "a")
    [container] = await dockerd.containers("a")
    await dockerd.run("rm", "--force", container["Id"])
    assert "worker ended by SIGKILL" in await dockerd.error(driver, "a")
    assert await driver.list() == []
    await driver.start("a")
    await dockerd.until_running(driver, "a")


async def test_a_container_that_a_person_stops_is_reported_and_started_again(dockerd: DockerSubject) -> None:
    driver = dockerd.driver()
    await dockerd.ready(driver, "a")
    [container] = await dockerd.containers("a")
    await dockerd.run("stop", container["Id"])
    assert "worker ended with status 0" in await dockerd.error(driver, "a")
    await dockerd.until_removed("a")
    await driver.start("a")
    await dockerd.until_running(driver, "a")


async def test_a_container_that_removes_itself_is_reported(dockerd: DockerSubject) -> None:
    driver = dockerd.driver_of({"HostConfig": {"AutoRemove": True}})
    await driver.start("crash")
    assert "worker ended with status 3" in await dockerd.error(driver, "crash")
    await dockerd.until_removed("crash")


async def test_an_end_that_no_daemon_saw_is_reported_by_the_next(dockerd: DockerSubject) -> None:
    former = dockerd.driver_of(NEVER)
    await dockerd.ready(former, "a")
    await former.close()
    await dockerd.kill("a")

    async def ended() -> bool:
        return [container["State"]["Status"] for container in await dockerd.containers("a")] == ["exited"]

    await until_async(ended)
    driver = dockerd.driver_of(NEVER)
    assert await driver.list() == []
    assert "SIGKILL" in await dockerd.error(driver, "a")
    await dockerd.until_removed("a")


async def create_only(dockerd: DockerSubject, key: str, *, limit_log: bool = True) -> str:
    """Leaves what a daemon leaves that ends between creating a container and starting it; returns its id."""
    driver = dockerd.driver()
    made = driver._template.body(key, "left-over", limit_log=limit_log)
    identity = await driver._engine.create(names.engine_name(dockerd.pool, "one", key), made)
    await driver.close()
    return identity


async def test_a_container_that_was_created_but_not_started_is_started(dockerd: DockerSubject) -> None:
    left = await create_only(dockerd, "a")
    driver = dockerd.driver()
    await driver.start("a")
    await dockerd.until_running(driver, "a")
    assert [container["Id"] for container in await dockerd.containers("a")] == [left]


async def test_one_whose_log_has_no_limit_is_made_again(dockerd: DockerSubject) -> None:
    # As a daemon leaves it that ends, or has no answer of the engine, before it has seen the log's options.
    await create_only(dockerd, "a", limit_log=False)
    driver = dockerd.driver()
    await driver.start("a")
    await dockerd.until_running(driver, "a")
    [container] = await dockerd.containers("a")
    assert container["HostConfig"]["LogConfig"] == {"Type": "json-file", "Config": LOG_LIMIT}


async def test_one_from_another_template_is_made_again(dockerd: DockerSubject) -> None:
    left = await create_only(dockerd, "a")
    driver = dockerd.driver(template="b")
    await driver.start("a")
    assert (await listed(driver))["a"].template == driver.template
    assert left not in [container["Id"] for container in await dockerd.containers("a")]


async def test_one_whose_key_is_not_wanted_is_removed_at_the_next_listing(dockerd: DockerSubject) -> None:
    await create_only(dockerd, "a")
    driver = dockerd.driver()
    assert await driver.list() == []
    await dockerd.until_removed("a")


async def test_a_start_that_the_engine_refused_before_can_succeed_later(dockerd: DockerSubject) -> None:
    await create_only(dockerd, "a")
    driver = dockerd.driver()
    await driver.stop("a")
    assert await dockerd.containers("a") == []
    await driver.start("a")
    await dockerd.until_running(driver, "a")


async def test_a_name_that_others_have_taken_is_reported(dockerd: DockerSubject) -> None:
    name = names.engine_name(dockerd.pool, "one", "a")
    await dockerd.run("create", "--name", name, "--label", f"osrdyne.pool={dockerd.pool}", dockerd.image)
    driver = dockerd.driver()
    assert await is_empty(driver)
    with pytest.raises(DriverError, match=f"another container has the name {name}"):
        await driver.start("a")


async def test_two_daemons_at_once_start_one_worker(dockerd: DockerSubject) -> None:
    one, two = dockerd.driver(), dockerd.driver()
    await asyncio.gather(*(driver.start(key) for key in ("a", "b", "c") for driver in (one, two)))
    await dockerd.until_running(one, "a", "b", "c")
    assert len(await dockerd.containers()) == 3
    assert {group.state for group in await two.list()} == {GroupState.RUNNING}
