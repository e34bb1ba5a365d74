"""Units that cannot be started, end by themselves, or are given up: each is reported for its own key."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from osrdyne.drivers.base import GroupState, How
from osrdyne.drivers.systemd import driver as systemd
from osrdyne.errors import DriverError
from testbed.waiting import PATIENCE_SECONDS, until_async
from tests.drivers.subjects.base import PASSWORD, is_empty, listed, next_change
from tests.drivers.subjects.systemd import SystemdSubject

pytestmark = [pytest.mark.xdist_group("systemd"), pytest.mark.full]


async def test_a_missing_unit_is_reported_with_what_to_do(units: SystemdSubject) -> None:
    driver = units.driver_of(units.place)
    with pytest.raises(DriverError) as refused:
        await driver.start("LAX")
    assert str(refused.value) == (
        f"cannot start a worker for key 'LAX': there is no unit {units.unit}; "
        "install it and run systemctl daemon-reload, or set driver.unit"
    )
    assert list(units.files.iterdir()) == []  # no credential is left where no unit reads it
    # And once it is there, the same driver starts it
    units.install()
    await driver.start("LAX")
    await units.until_running(driver, "LAX")


async def test_a_unit_that_does_not_read_its_environment_is_reported(units: SystemdSubject) -> None:
    units.install("EnvironmentFile=", "EnvironmentFile=/etc/worker/%i.env")
    with pytest.raises(DriverError, match=f"add EnvironmentFile={units.files}/%i.env to it"):
        await units.driver_of(units.place).start("a")


async def test_a_unit_that_systemd_cannot_load_is_reported(units: SystemdSubject) -> None:
    units.install("ExecStart=")
    with pytest.raises(DriverError, match=r"cannot be loaded: .*; see systemd-analyze verify /"):
        await units.driver_of(units.place).start("a")


async def test_a_masked_unit_is_reported(units: SystemdSubject) -> None:
    (units.machine.units / units.unit).symlink_to("/dev/null")
    units.machine.run("systemctl", "daemon-reload")
    with pytest.raises(DriverError, match=f"is masked; run systemctl unmask {units.unit}"):
        await units.driver_of(units.place).start("a")


async def test_a_command_that_cannot_be_run_is_reported(units: SystemdSubject) -> None:
    units.install(command="/opt/no/such/worker")
    driver = units.driver_of(units.place)
    await driver.start("a")
    error = await units.error(driver, "a")
    assert "ended with status 203: systemd cannot run the command of its ExecStart=" in error
    assert f"see journalctl -u {units.unit_of('a')}" in error


@pytest.mark.parametrize(
    ("unit", "said"),
    [
        ("ConditionPathExists=/no/such/file", "was not started: a Condition...= of the unit does not hold"),
        ("AssertPathExists=/no/such/file", "was not started: an Assert...= of the unit does not hold"),
        ("Requires=no-such-unit.service", "no-such-unit.service not found"),
    ],
)
async def test_a_unit_that_systemd_does_not_start_is_reported(units: SystemdSubject, unit: str, said: str) -> None:
    units.install(unit=(unit,))
    driver = units.driver_of(units.place)
    try:
        await driver.start("a")
        error = await units.error(driver, "a")
    except DriverError as refused:
        error = str(refused)
    assert said in error
    assert await listed(driver) == {}


async def test_a_unit_that_was_given_up_is_an_error_and_the_next_start_resets_it(units: SystemdSubject) -> None:
    # Given a worker that ends whenever it starts, and a systemd that gives up at the second time
    units.install(unit=("StartLimitBurst=2", "StartLimitIntervalSec=600"))
    driver = units.driver_of(units.place)
    await driver.start("crash")
    errors = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for change in driver.changes():
            assert change.error is not None
            errors.append(change.error)
            if "given it up" in change.error:
                break
    # Of several changes at once the latest is reported, so that one of the first may be missing.
    assert any("ended with status 3" in error for error in errors)
    # Then it is not a group any more, and a person sees it as failed
    assert await listed(driver) == {}
    assert units.machine.run("systemctl", "show", "--property=ActiveState", units.unit_of("crash")) == (
        "ActiveState=failed\n"
    )
    # And a start is not refused for having been too many
    await driver.start("crash")
    assert "ended with status 3" in await units.error(driver, "crash")


async def test_a_failed_unit_that_is_not_started_again_is_cleaned_up_after_a_while(
    units: SystemdSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    units.install("Restart=no")
    driver = units.driver_of(units.place)
    await driver.start("crash")
    await units.error(driver, "crash")
    await driver.list()
    assert len(list(units.files.iterdir())) == 1
    monkeypatch.setattr(systemd, "_KEEP_SECONDS", 0.0)
    await driver.list()
    assert list(units.files.iterdir()) == []
    assert not units.machine.run("systemctl", "list-units", "--all", "--no-legend", units.unit_of("crash"))


async def test_an_error_ends_with_the_last_line_of_the_worker_and_without_its_password(units: SystemdSubject) -> None:
    driver = units.driver()
    await driver.start("crash")
    error = await units.error(driver, "crash")
    assert error.endswith(": cannot reach amqp://worker:***@broker.invalid/vhost")
    assert PASSWORD not in error


async def test_a_worker_that_ends_well_without_being_asked_is_reported(units: SystemdSubject) -> None:
    units.install(command="/bin/true")
    driver = units.driver_of(units.place)
    await driver.start("a")
    assert "ended with status 0; systemd does not start it again" in await units.error(driver, "a")


async def test_a_stop_by_others_is_reported(units: SystemdSubject) -> None:
    driver = units.driver()
    await units.ready(driver, "a")
    units.machine.run("systemctl", "stop", units.unit_of("a"))
    assert "was stopped, though not by this daemon" in await units.error(driver, "a")
    assert await listed(driver) == {}


async def test_a_worker_that_outlasts_its_grace_is_killed_and_reported_and_leaves_nothing(
    units: SystemdSubject,
) -> None:
    units.install("TimeoutStopSec=0.5")
    driver = units.driver_of(units.place)
    await units.ready(driver, "deaf")
    await driver.stop("deaf")
    assert "did not end within the unit's TimeoutStopSec=" in await units.error(driver, "deaf")

    async def nothing_left() -> bool:
        shown = units.machine.run("systemctl", "list-units", "--all", "--no-legend", units.unit_of("deaf"))
        return not shown and not list(units.files.iterdir())

    await until_async(nothing_left)


async def test_a_worker_that_ends_badly_when_it_was_asked_to_end_is_not_an_error(units: SystemdSubject) -> None:
    units.install(command="/bin/sh -c 'trap \"exit 5\" TERM; while :; do sleep 0.05; done'")
    driver = units.driver_of(units.place)
    await driver.start("a")
    await units.until_running(driver, "a")
    await driver.stop("a")
    async with asyncio.timeout(PATIENCE_SECONDS):
        change = await anext(aiter(driver.changes()))
    assert (change.key, change.error) == ("a", None)
    assert change.end is not None
    assert change.end.how is How.STOPPED

    async def nothing_left() -> bool:
        return await is_empty(driver) and not list(units.files.iterdir())

    await until_async(nothing_left)


async def test_a_failed_key_harms_no_other(units: SystemdSubject) -> None:
    units.install(unit=("StartLimitBurst=1", "StartLimitIntervalSec=600"))
    driver = units.driver_of(units.place)
    for key in ("a", "crash", "b"):
        await driver.start(key)
    await units.error(driver, "crash")
    await units.until_running(driver, "a", "b")
    assert (await listed(driver))["a"].state is GroupState.RUNNING


async def test_ends_of_a_group_are_reported_in_their_order_where_the_journal_is_slow(units: SystemdSubject) -> None:
    # Given a journal that takes longer than systemd takes to start a worker again
    slow = ("sh", "-c", 'sleep 2; exec "$@"', "sh", *units.place.journalctl)
    driver = units.driver_of(replace(units.place, journalctl=slow))
    units.install()
    await units.ready(driver, "a")
    before = await units.workers("a")

    # When a worker is killed, and the one that follows is stopped
    await units.kill("a")

    async def back() -> bool:
        now = await units.workers("a")
        return bool(now) and now != before

    await until_async(back)
    await driver.stop("a")

    # Then the death comes first
    ends = [change.end.how for change in [await next_change(driver), await next_change(driver)] if change.end]
    assert ends == [How.SIGNAL, How.STOPPED]
