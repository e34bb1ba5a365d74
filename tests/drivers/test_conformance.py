"""One suite for every driver: what the group loop relies on, whatever the engine."""

from __future__ import annotations

import asyncio
import logging
import signal

import pytest

from osrdyne.drivers.base import Change, Driver, GroupState, How
from osrdyne.drivers.systemd import groups
from osrdyne_pool.settings import PoolSettings
from osrdyne_pool.topology import milliseconds
from osrdyne_protocol import names
from osrdyne_protocol.keys import digest
from osrdyne_protocol.names import PoolNames
from testbed.waiting import PATIENCE_SECONDS, until_async
from tests.drivers.subjects.base import PASSWORD, WORKER_URI, OwningSubject, Subject, is_empty, listed, next_change
from tests.hard_keys import KEYS

# -- every driver


async def test_start_and_stop_of_any_key_are_accepted_twice(subject: Subject) -> None:
    driver = subject.driver()
    for key in KEYS:
        await driver.stop(key)
        await driver.start(key)
        await driver.start(key)
        await driver.stop(key)
        await driver.stop(key)

    async def empty() -> bool:
        return await is_empty(driver)

    await until_async(empty)


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
    assert await asyncio.wait_for(reading, PATIENCE_SECONDS) == []


# -- every driver that owns its workers


async def test_every_key_gets_a_group_and_an_environment_of_its_own(owning: OwningSubject) -> None:
    driver, names = owning.driver(), PoolNames(owning.pool)
    for key in KEYS:
        await driver.start(key)
    await owning.until_running(driver, *KEYS)
    groups = await listed(driver)
    assert groups.keys() == set(KEYS)
    ids = set()
    for key in KEYS:
        assert groups[key].workers == 1
        assert groups[key].template == driver.template
        [environment] = await owning.environments(key)
        given = {name: text for name, text in environment.items() if name.startswith("WORKER_")}
        ids.add(given.pop("WORKER_ID"))
        given.pop("WORKER_AMQP_URI_FILE", None)
        assert given == {
            "WORKER_KEY": key,
            "WORKER_POOL": owning.pool,
            "WORKER_REQUESTS_QUEUE": names.request_queue(key),
            "WORKER_ACTIVITY_EXCHANGE": names.activity_exchange,
            "WORKER_AMQP_URI": WORKER_URI,
            "WORKER_CONSUMER_TIMEOUT": str(milliseconds(PoolSettings(owning.pool).consumer_timeout)),
        }
    assert len(ids) == len(KEYS)
    assert all(ids)


async def test_a_second_start_keeps_the_worker(owning: OwningSubject) -> None:
    driver = owning.driver()
    await owning.ready(driver, "a")
    before = await owning.workers("a")
    await driver.start("a")
    await driver.start("b")
    await owning.until_running(driver, "a", "b")
    assert await owning.workers("a") == before


async def test_each_start_has_a_worker_id_of_its_own(owning: OwningSubject) -> None:
    driver = owning.driver()
    ids = set()
    for _ in range(3):
        for key in ("a", "A"):
            await driver.start(key)
        await owning.until_running(driver, "a", "A")
        for key in ("a", "A"):
            ids |= {environment["WORKER_ID"] for environment in await owning.environments(key)}
            await driver.stop(key)
        await owning.until_gone(driver, "a", "A")
    assert len(ids) == 6


async def test_the_next_daemon_finds_every_group_and_restarts_no_worker(owning: OwningSubject) -> None:
    # Given groups of any key, and a daemon that ends
    first = owning.driver()
    for key in KEYS:
        await first.start(key)
    await owning.until_running(first, *KEYS)
    before = {key: await owning.workers(key) for key in KEYS}
    await first.close()
    # When the next daemon starts them again, which it need not
    second = owning.driver()
    groups = await listed(second)
    for key in KEYS:
        await second.start(key)
    await owning.until_running(second, *KEYS)
    # Then they are the same workers
    assert groups.keys() == set(KEYS)
    assert {key: await owning.workers(key) for key in KEYS} == before
    # And it can stop them
    for key in KEYS:
        await second.stop(key)
    await owning.until_gone(second, *KEYS)


async def test_a_changed_template_shows_and_rolls_only_what_is_started_again(owning: OwningSubject) -> None:
    former = owning.driver(template="a")
    await owning.ready(former, "stays")
    await owning.ready(former, "rolls")
    stays = await owning.workers("stays")
    await former.close()
    driver = owning.driver(template="b")
    assert driver.template != former.template
    assert {group.template for group in await driver.list()} == {former.template}
    await driver.stop("rolls")
    await owning.until_gone(driver, "rolls")
    await driver.start("rolls")
    await owning.until_running(driver, "rolls")
    groups = await listed(driver)
    assert groups["rolls"].template == driver.template
    assert (groups["stays"].template, await owning.workers("stays")) == (former.template, stays)


async def test_the_same_template_has_the_same_hash_in_every_daemon(owning: OwningSubject) -> None:
    one, other = owning.driver(template="a"), owning.driver(template="a")
    # Where the engine itself has the template, a driver knows it once it has listed.
    await one.list()
    await other.list()
    assert one.template == other.template != ""


@pytest.mark.parametrize("other", ["pool", "instance"])
async def test_pools_and_instances_on_one_engine_leave_each_other_alone(owning: OwningSubject, other: str) -> None:
    # Given the same key in two pools, or in two instances of one
    who = {"pool": f"{owning.pool}-two"} if other == "pool" else {"instance": "two"}
    ours, theirs = owning.driver(), owning.driver(**who)
    await ours.start("a")
    await theirs.start("a")
    await theirs.start("only theirs")
    await owning.until_running(ours, "a")
    await owning.until_running(theirs, "a", "only theirs")
    their_workers = await owning.workers("a", **who)
    # Then each sees its own
    assert (await listed(ours)).keys() == {"a"}
    assert (await listed(theirs)).keys() == {"a", "only theirs"}
    # And stops only its own
    await ours.stop("a")
    await ours.stop("only theirs")
    await owning.until_gone(ours, "a")
    assert await owning.workers("a", **who) == their_workers != []
    assert (await listed(theirs)).keys() == {"a", "only theirs"}


async def test_a_failing_key_is_reported_and_harms_no_other(owning: OwningSubject) -> None:
    driver = owning.driver()
    await owning.ready(driver, "a")
    await driver.start("crash")
    error = await owning.error(driver, "crash")
    assert PASSWORD not in error
    assert (await listed(driver))["a"].state is GroupState.RUNNING
    await driver.start("b")
    await owning.until_running(driver, "a", "b")


async def next_end(driver: Driver, key: str, how: How) -> Change:
    """Return the next end of this kind: a busy engine may report others for a moment."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for change in driver.changes():
            if change.key == key and change.end is not None and change.end.how is how:
                return change
    raise AssertionError("the driver was closed")


async def test_each_end_of_a_worker_says_how_it_ended_and_which_worker_it_was(owning: OwningSubject) -> None:
    driver = owning.driver()
    # One that ends by itself
    await driver.start("crash")
    end = (await next_end(driver, "crash", How.EXIT)).end
    assert end is not None
    assert end.code == 3
    assert PASSWORD not in " ".join(end.output)
    if owning.name != "kubernetes":  # whose template decides whether there is any
        assert end.output
        assert end.output[-1].startswith("cannot reach amqp://worker:***@")
    # One that is killed
    await owning.ready(driver, "a")
    [environment] = await owning.environments("a")
    await owning.kill("a")
    change = await next_end(driver, "a", How.SIGNAL)
    assert change.error
    assert change.end is not None
    assert (change.end.code, change.end.worker_id) == (signal.SIGKILL, environment["WORKER_ID"])
    # And one that is asked to stop
    await owning.ready(driver, "b")
    [environment] = await owning.environments("b")
    await driver.stop("b")
    change = await next_end(driver, "b", How.STOPPED)
    assert change.error is None
    assert change.end is not None
    assert change.end.worker_id == environment["WORKER_ID"]
    assert PASSWORD not in " ".join(change.end.output)


async def test_an_error_that_was_not_read_stays_when_the_group_is_started_and_stopped_again(
    owning: OwningSubject,
) -> None:
    driver = owning.driver()
    await owning.ready(driver, "a")
    before = await owning.workers("a")
    await owning.kill("a")
    if not owning.heals:
        await owning.until_gone(driver, "a")
        await driver.start("a")

    async def back() -> bool:
        now = await owning.workers("a")
        return bool(now) and now != before

    await until_async(back)
    await driver.stop("a")
    await owning.until_gone(driver, "a")
    assert (await next_change(driver)).error


async def test_a_worker_killed_from_outside_is_reported_and_comes_back(owning: OwningSubject) -> None:
    driver = owning.driver()
    await owning.ready(driver, "a")
    before = await owning.workers("a")
    await owning.kill("a")
    assert await owning.error(driver, "a")
    if not owning.heals:  # then the group loop does this, because of that error
        await driver.start("a")

    async def back() -> bool:
        now = await owning.workers("a")
        return bool(now) and now != before

    await until_async(back)
    await owning.until_running(driver, "a")


async def test_a_stopped_worker_finishes_what_it_holds_and_is_listed_meanwhile(owning: OwningSubject) -> None:
    driver = owning.driver()
    await owning.ready(driver, "busy")
    await driver.stop("busy")
    assert (await listed(driver))["busy"].state is GroupState.STOPPING
    changes_until_gone = asyncio.create_task(_changes_until_gone(owning, driver, "busy"))

    async def finished() -> bool:
        return "finished" in await owning.output("busy")

    await until_async(finished)
    assert all(change.error is None for change in await changes_until_gone)


async def test_a_group_asked_for_while_it_stops_comes_back(owning: OwningSubject) -> None:
    driver = owning.driver()
    await owning.ready(driver, "busy")
    before = await owning.workers("busy")
    await driver.stop("busy")
    await driver.start("busy")

    async def new_worker() -> bool:
        now = await owning.workers("busy")
        return bool(now) and now != before

    await until_async(new_worker)
    await owning.until_running(driver, "busy")


async def test_the_last_wish_of_start_and_stop_counts(owning: OwningSubject) -> None:
    driver = owning.driver()
    await owning.ready(driver, "busy")
    await driver.stop("busy")
    await driver.start("busy")
    await driver.stop("busy")
    await owning.until_gone(driver, "busy")
    assert await owning.workers("busy") == []


async def test_a_closed_driver_has_stopped_no_worker(owning: OwningSubject) -> None:
    driver = owning.driver()
    await owning.ready(driver, "a")
    before = await owning.workers("a")
    await driver.close()
    assert await owning.workers("a") == before != []


async def test_no_credential_is_in_any_inspectable_place(owning: OwningSubject) -> None:
    driver = owning.driver()
    await owning.ready(driver, "a")
    await owning.ready(driver, "b")
    seen = await owning.inspectable()
    assert PASSWORD.encode() not in seen
    assert owning.pool.encode() in seen  # it looked at the right place


def earlier_name(pool: str, instance: str, key: str) -> str:
    """A name of an earlier version, with 80 bits of a hash."""
    return f"{pool[:16]}-{key}-{digest(pool, instance, key)[:20]}".replace("--", "-")


async def test_workers_that_an_earlier_version_named_otherwise_are_reported_or_taken_over(
    owning: OwningSubject, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as earlier:
        for module in (names, groups):
            earlier.setattr(module, "engine_name", earlier_name)
        driver = owning.driver()
        await owning.ready(driver, "a")
        worker = await owning.workers("a")
        await driver.close()
    with caplog.at_level(logging.WARNING):
        driver = owning.driver()
        found = await listed(driver)
        await driver.list()
    said = [vars(record)["command"] for record in caplog.records if "of an earlier version" in record.message]
    if owning.name == "kubernetes":
        assert ([*found], said) == (["a"], [])
        await driver.start("a")
        await driver.stop("a")
        await until_async(lambda: is_empty(driver))
    else:
        assert found == {}
        pid, name = worker[0].split()[0], earlier_name(owning.pool, "one", "a")
        assert said == [
            {
                "subprocess": f"kill {pid}",
                "docker": f"docker stop {name}",
                "systemd": f"systemctl stop osrdyne-{owning.pool}@{name}.service",
            }[owning.name]
        ]


@pytest.mark.timeout(600)
async def test_a_hundred_groups_start_and_stop(owning: OwningSubject) -> None:
    driver, keys = owning.driver(), {f"key-{number}" for number in range(100)}
    await asyncio.gather(*(driver.start(key) for key in keys))
    assert (await listed(driver)).keys() == keys
    await asyncio.gather(*(driver.stop(key) for key in keys))
    await owning.until_gone(driver, *keys)


async def _changes_until_gone(owning: OwningSubject, driver: Driver, key: str) -> list[Change]:
    found: list[Change] = []

    async def read() -> None:
        async for change in driver.changes():
            found.append(change)  # noqa: PERF401 -- what was found must be there when this is cancelled

    reading = asyncio.create_task(read())
    await owning.until_gone(driver, key)
    reading.cancel()
    return found
