"""One suite for every driver: what the worker loop relies on, whatever the engine."""

from __future__ import annotations

import asyncio

import pytest

from osrdyne.drivers import Change, Driver, GroupState
from osrdyne_protocol.names import PoolNames
from osrdyne_protocol.settings import PoolSettings
from osrdyne_protocol.topology import milliseconds
from tests.drivers.subjects import PASSWORD, WORKER_URI, Owning, Subject, listed, next_change
from tests.engines.waiting import until_async
from tests.hard_keys import KEYS


async def is_gone(driver: Driver, *keys: str) -> None:
    """Returns once none of the keys is listed any more."""

    async def gone() -> bool:
        return not (await listed(driver)).keys() & set(keys)

    await until_async(gone)


# -- every driver


async def test_start_and_stop_of_any_key_are_accepted_twice(subject: Subject) -> None:
    driver = subject.driver()
    for key in KEYS:
        await driver.stop(key)
        await driver.start(key)
        await driver.start(key)
        await driver.stop(key)
        await driver.stop(key)
    await is_gone(driver, *KEYS)


async def test_a_driver_says_whether_it_owns_workers_and_lists_only_then(subject: Subject) -> None:
    driver = subject.driver()
    assert driver.owns_workers is subject.owns_workers
    await driver.start("a")
    assert bool(await driver.list()) is subject.owns_workers


async def test_changes_end_when_the_driver_is_closed(subject: Subject) -> None:
    driver = subject.driver()

    async def read() -> list[Change]:
        return [change async for change in driver.changes()]

    reading = asyncio.create_task(read())
    await asyncio.sleep(0)
    await driver.close()
    assert await asyncio.wait_for(reading, 10) == []


# -- every driver that owns its workers


async def test_every_key_gets_a_group_and_an_environment_of_its_own(owning: Owning) -> None:
    driver, names = owning.driver(), PoolNames("echo")
    for key in KEYS:
        await driver.start(key)
    groups = await listed(driver)
    assert groups.keys() == set(KEYS)
    for key in KEYS:
        assert (groups[key].state, groups[key].workers) == (GroupState.RUNNING, 1)
        assert groups[key].template == driver.template
        [environment] = await owning.environments(key)
        given = {name: text for name, text in environment.items() if name.startswith("WORKER_")}
        assert given.pop("WORKER_ID")
        assert given == {
            "WORKER_KEY": key,
            "WORKER_POOL": "echo",
            "WORKER_REQUESTS_QUEUE": names.request_queue(key),
            "WORKER_ACTIVITY_EXCHANGE": names.activity_exchange,
            "WORKER_AMQP_URI": WORKER_URI,
            "WORKER_CONSUMER_TIMEOUT": str(milliseconds(PoolSettings(name="echo").consumer_timeout)),
        }


async def test_a_second_start_keeps_the_worker(owning: Owning) -> None:
    driver = owning.driver()
    await driver.start("a")
    before = await owning.environments("a")
    await driver.start("a")
    assert await owning.environments("a") == before


async def test_each_start_has_a_worker_id_of_its_own(owning: Owning) -> None:
    driver = owning.driver()
    ids = set()
    for _ in range(3):
        for key in ("a", "A"):
            await driver.start(key)
            ids |= {environment["WORKER_ID"] for environment in await owning.environments(key)}
            await driver.stop(key)
        await is_gone(driver, "a", "A")
    assert len(ids) == 6


async def test_the_next_daemon_finds_every_group_and_restarts_no_worker(owning: Owning) -> None:
    # Given groups of any key, and a daemon that ends
    first = owning.driver()
    for key in KEYS:
        await first.start(key)
    before = {key: await owning.environments(key) for key in KEYS}
    await first.close()
    # When the next daemon starts them again, which it need not
    second = owning.driver()
    groups = await listed(second)
    for key in KEYS:
        await second.start(key)
    # Then they are the same workers
    assert groups.keys() == set(KEYS)
    assert {key: await owning.environments(key) for key in KEYS} == before
    # And it can stop them
    for key in KEYS:
        await second.stop(key)
    await is_gone(second, *KEYS)


async def test_a_changed_template_shows_and_rolls_only_what_is_started_anew(owning: Owning) -> None:
    former = owning.driver(template="a")
    await former.start("stays")
    await former.start("rolls")
    stays = await owning.environments("stays")
    await former.close()
    driver = owning.driver(template="b")
    assert driver.template != former.template
    assert {group.template for group in await driver.list()} == {former.template}
    await driver.stop("rolls")
    await is_gone(driver, "rolls")
    await driver.start("rolls")
    groups = await listed(driver)
    assert groups["rolls"].template == driver.template
    assert (groups["stays"].template, await owning.environments("stays")) == (former.template, stays)


async def test_the_same_template_has_the_same_hash_in_every_daemon(owning: Owning) -> None:
    assert owning.driver(template="a").template == owning.driver(template="a").template


@pytest.mark.parametrize("other", [{"pool": "other"}, {"instance": "two"}], ids=["pool", "instance"])
async def test_pools_and_instances_on_one_engine_leave_each_other_alone(owning: Owning, other: dict[str, str]) -> None:
    # Given the same key in two pools, or in two instances of one
    ours, theirs = owning.driver(), owning.driver(**other)
    await ours.start("a")
    await theirs.start("a")
    await theirs.start("only theirs")
    their_workers = await owning.environments("a", **other)
    # Then each sees its own
    assert (await listed(ours)).keys() == {"a"}
    assert (await listed(theirs)).keys() == {"a", "only theirs"}
    # And stops only its own
    await ours.stop("a")
    await ours.stop("only theirs")
    await is_gone(ours, "a")
    assert await owning.environments("a", **other) == their_workers
    assert (await listed(theirs)).keys() == {"a", "only theirs"}


async def test_a_failing_key_is_told_and_harms_no_other(owning: Owning) -> None:
    driver = owning.driver()
    await driver.start("a")
    await driver.start("crash")
    change = await next_change(driver)
    assert change.key == "crash"
    assert change.error is not None
    assert PASSWORD not in change.error
    assert (await listed(driver))["a"].state is GroupState.RUNNING
    await driver.start("b")
    assert (await listed(driver)).keys() >= {"a", "b"}


async def test_a_worker_killed_from_outside_is_told_and_can_be_started_again(owning: Owning) -> None:
    driver = owning.driver()
    await driver.start("a")
    [before] = await owning.environments("a")
    await owning.kill("a")
    change = await next_change(driver)
    assert change.key == "a"
    assert change.error is not None
    await driver.start("a")
    [after] = await owning.environments("a")
    assert after["WORKER_ID"] != before["WORKER_ID"]


async def test_a_stopped_worker_finishes_what_it_holds_and_is_listed_meanwhile(owning: Owning) -> None:
    driver = owning.driver()
    await owning.ready(driver, "busy")
    await driver.stop("busy")
    assert (await listed(driver))["busy"].state is GroupState.STOPPING
    change = await next_change(driver)
    assert change == Change("busy")
    await is_gone(driver, "busy")
    assert "finished" in await owning.output("busy")


async def test_a_group_asked_for_while_it_stops_comes_back(owning: Owning) -> None:
    driver = owning.driver()
    await owning.ready(driver, "busy")
    [before] = await owning.environments("busy")
    await driver.stop("busy")
    await driver.start("busy")

    async def new_worker() -> bool:
        found = await owning.environments("busy")
        return bool(found) and found[0]["WORKER_ID"] != before["WORKER_ID"]

    await until_async(new_worker)
    assert "finished" in await owning.output("busy")
    assert (await listed(driver))["busy"].state is GroupState.RUNNING


async def test_the_last_wish_of_start_and_stop_counts(owning: Owning) -> None:
    driver = owning.driver()
    await owning.ready(driver, "busy")
    await driver.stop("busy")
    await driver.start("busy")
    await driver.stop("busy")
    await is_gone(driver, "busy")
    assert await owning.environments("busy") == []


async def test_a_closed_driver_has_stopped_no_worker(owning: Owning) -> None:
    driver = owning.driver()
    await driver.start("a")
    before = await owning.environments("a")
    await driver.close()
    assert await owning.environments("a") == before != []


async def test_no_credential_is_in_any_inspectable_place(owning: Owning) -> None:
    driver = owning.driver()
    await owning.ready(driver, "a")
    await driver.start("b")
    seen = await owning.inspectable()
    assert PASSWORD.encode() not in seen
    assert b'"a"' in seen  # it looked at the right place


async def test_a_hundred_groups_start_and_stop(owning: Owning) -> None:
    driver, keys = owning.driver(), {f"key-{number}" for number in range(100)}
    await asyncio.gather(*(driver.start(key) for key in keys))
    assert (await listed(driver)).keys() == keys
    await asyncio.gather(*(driver.stop(key) for key in keys))
    await is_gone(driver, *keys)
