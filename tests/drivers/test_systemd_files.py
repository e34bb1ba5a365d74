"""Environment files and template units: what workers are given, what is kept, and what a change of either does."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from osrdyne.drivers.base import Change
from osrdyne.drivers.systemd import groups
from osrdyne.drivers.systemd.driver import SystemdDriver
from osrdyne.errors import DriverError
from osrdyne_pool.settings import PoolSettings
from osrdyne_protocol import names
from testbed.waiting import until_async
from tests.drivers.subjects.base import WORKER_URI, listed, next_change
from tests.drivers.subjects.systemd import SystemdSubject

pytestmark = [pytest.mark.xdist_group("systemd"), pytest.mark.full]

#: What a shell, systemd, or a reader of lines could take for something else.
AWKWARD = [
    "".join(map(chr, range(1, 128))),
    "ends with a backslash\\",
    "\\n is not a line break, \\\n is",
    "\"quoted\" 'twice' `and` $HOME ${HOME} $$ %i %%",
    "  blanks around  ",
    "# no comment\n; nor this\r\n=",
    "\u0085\u2028\u2029\ufeff",
]


def file_of(units: SystemdSubject, key: str) -> Path:
    [file] = [path for path in units.files.iterdir() if f"@{path.stem}." in units.unit_of(key)]
    return file


async def test_awkward_characters_arrive_unchanged(units: SystemdSubject) -> None:
    driver = units.driver()
    for key in AWKWARD:
        await driver.start(key)
    await units.until_running(driver, *AWKWARD)
    assert [(await units.environments(key))[0]["WORKER_KEY"] for key in AWKWARD] == AWKWARD


async def test_only_the_daemon_can_read_a_file_and_it_goes_with_its_group(units: SystemdSubject) -> None:
    driver = units.driver()
    await units.ready(driver, "a")
    assert file_of(units, "a").stat().st_mode & 0o777 == 0o600
    assert units.files.stat().st_mode & 0o777 == 0o700
    await driver.stop("a")

    async def gone() -> bool:
        return not list(units.files.iterdir())

    await until_async(gone)


async def test_a_unit_file_with_a_name_of_an_earlier_version_goes_once_a_person_has_stopped_the_unit(
    units: SystemdSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        for module in (names, groups):
            earlier.setattr(module, "engine_name", lambda pool, *_: f"{pool}-earlier")
        former = units.driver()
        await units.ready(former, "a")
        await former.close()
        unit = units.unit_of("a")
    driver = units.driver()
    assert await listed(driver) == {}
    [file] = units.files.iterdir()
    units.machine.run("systemctl", "stop", unit)

    async def gone() -> bool:
        await driver.list()
        return not file.exists()

    await until_async(gone)


async def test_a_directory_that_others_may_enter_is_refused(units: SystemdSubject) -> None:
    units.files.mkdir()
    units.files.chmod(0o755)
    with pytest.raises(DriverError, match="must be ours alone"):
        units.driver()


async def test_a_file_that_a_person_removed_is_written_again(units: SystemdSubject) -> None:
    driver = units.driver()
    await units.ready(driver, "a")
    before = file_of(units, "a").read_bytes()
    file_of(units, "a").unlink()
    assert (await listed(driver))["a"].template == driver.template
    assert file_of(units, "a").read_bytes() == before


async def test_a_running_unit_without_a_record_is_started_again_once_its_key_is_wanted(
    units: SystemdSubject,
) -> None:
    # Given a unit whose file was removed while no daemon ran
    first = units.driver()
    await units.ready(first, "a")
    await first.close()
    file_of(units, "a").unlink()
    second = units.driver()
    assert await listed(second) == {}
    # When its key is wanted, then it is there, but not of the template as it is: the group loop starts it again
    await second.start("a")
    assert (await listed(second))["a"].template not in (second.template, "")


async def test_a_file_that_is_not_ours_is_passed_over(units: SystemdSubject) -> None:
    driver = units.driver()
    await units.ready(driver, "a")
    (units.files / "other.env").write_bytes(b"\xff not ours")
    assert (await listed(driver)).keys() == {"a"}


async def test_a_restart_by_systemd_finds_a_changed_password(units: SystemdSubject) -> None:
    # Given a worker that was started with a password that has been changed since
    units.install()
    uris = [WORKER_URI]
    driver = SystemdDriver(PoolSettings(units.pool, "one"), units.place, lambda: uris[-1])
    await units.ready(driver, "a")
    uris.append(WORKER_URI.replace("pass-word", "new-word"))
    # When it ends after the daemon has looked
    await listed(driver)
    [before] = await units.workers("a")
    await units.kill("a")

    async def back() -> bool:
        return await units.workers("a") not in ([], [before])

    await until_async(back)
    await units.until_running(driver, "a")
    # Then the worker that systemd starts instead has the new one
    [environment] = await units.environments("a")
    assert environment["WORKER_AMQP_URI"] == uris[-1]
    await driver.close()


async def test_every_daemon_makes_the_same_hash_of_the_same_template(units: SystemdSubject) -> None:
    first, second = units.driver(), units.driver()
    await first.list()
    await second.list()
    assert first.template == second.template != ""


async def test_a_drop_in_and_the_consumer_timeout_are_part_of_the_template(units: SystemdSubject) -> None:
    driver = units.driver()
    await driver.list()
    hashes = {driver.template}
    slower = SystemdDriver(PoolSettings(units.pool, "one", consumer_timeout=60.0), units.place, lambda: WORKER_URI)
    await slower.list()
    await slower.close()
    hashes.add(slower.template)
    drop_in = units.machine.units / f"{units.unit}.d/more.conf"
    drop_in.parent.mkdir()
    drop_in.write_text("[Service]\nEnvironment=MORE=1\n")
    units.machine.run("systemctl", "daemon-reload")
    await driver.list()
    hashes.add(driver.template)
    drop_in.unlink()
    drop_in.parent.rmdir()
    assert len(hashes) == 3


async def test_a_drop_in_for_one_key_is_not_part_of_the_template(units: SystemdSubject) -> None:
    driver = units.driver()
    drop_in = units.machine.units / f"{units.unit_of('a')}.d/more.conf"
    drop_in.parent.mkdir()
    drop_in.write_text("[Service]\nEnvironment=MORE=1\n")
    try:
        units.machine.run("systemctl", "daemon-reload")
        await units.ready(driver, "a")
        assert (await units.environments("a"))[0]["MORE"] == "1"
        assert (await listed(driver))["a"].template == driver.template
    finally:
        drop_in.unlink()
        drop_in.parent.rmdir()


async def test_an_edited_unit_rolls_nothing_before_systemd_has_read_it(units: SystemdSubject) -> None:
    driver = units.driver()
    await units.ready(driver, "a")
    file = units.machine.units / units.unit
    # When it is edited
    file.write_text(file.read_text() + "Environment=TEMPLATE=b\n")
    # Then the daemon, and the next one, leave the group alone
    next_daemon = units.driver_of(units.place)
    for each_driver in (driver, next_daemon):
        assert (await listed(each_driver))["a"].template == each_driver.template
    # Until systemd reloads it, which the drivers notice
    units.machine.run("systemctl", "daemon-reload")
    for each_driver in (driver, next_daemon):
        assert await next_change(each_driver) == Change("a")
        assert (await listed(each_driver))["a"].template != each_driver.template


async def test_a_changed_unit_is_reported_when_systemd_reads_it(units: SystemdSubject) -> None:
    driver = units.driver()
    await units.ready(driver, "a")
    before = driver.template
    units.install("Environment=TEMPLATE=b")
    assert await next_change(driver) == Change("a")
    assert driver.template != before
    assert (await listed(driver))["a"].template == before


async def test_a_broken_unit_rolls_no_group_of_any_daemon(units: SystemdSubject) -> None:
    driver = units.driver()
    await units.ready(driver, "a")
    await listed(driver)
    units.install("ExecStart=")
    # Then the daemon that knew the unit, and one that never did, find the group as it should be
    for each_driver in (driver, units.driver_of(units.place)):
        assert (await listed(each_driver))["a"].template == each_driver.template
    # And when it is mended, nothing has changed
    units.install("Environment=TEMPLATE=a")
    assert (await listed(driver))["a"].template == driver.template


async def test_the_key_leads_to_the_unit_and_its_journal_as_the_page_says(units: SystemdSubject) -> None:
    driver = units.driver()
    await units.ready(driver, 'L"AX')
    await units.ready(driver, "SFO")
    found = units.machine.run("sh", "-c", f"""grep -lF '"key": "L\\"AX"' {units.files}/*.env""").split()
    [name] = [Path(path).stem for path in found]
    unit = units.place.unit_of(name)
    assert "ready" in units.machine.run("journalctl", "--unit", unit, "--output=cat")


async def test_two_templates_for_one_pool_are_two_sets_of_groups(units: SystemdSubject) -> None:
    driver = units.driver()
    await units.ready(driver, "a")
    other = units.driver_of(dataclasses.replace(units.place, unit="other@.service"))
    assert await listed(other) == {}
