"""A thousand workers of one driver."""

from __future__ import annotations

import pytest

from osrdyne.drivers.subprocess.driver import SubprocessTemplate
from osrdyne.drivers.subprocess.records import ProcessRecord, Records
from testbed.waiting import until_async
from tests.drivers.subjects.base import is_empty
from tests.drivers.subjects.subprocess import SubprocessSubject

SLEEP = SubprocessTemplate(("sleep", "1000"))


@pytest.mark.full
async def test_a_thousand_groups_are_started_adopted_and_stopped_and_listed_all_at_once(
    machine: SubprocessSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    listings = 0
    read_all = Records.read_all

    def counted(self: Records) -> dict[str, ProcessRecord]:
        nonlocal listings
        listings += 1
        return read_all(self)

    monkeypatch.setattr(Records, "read_all", counted)
    driver = machine.driver_of(SLEEP)
    keys = [f"key-{number}" for number in range(1000)]
    for key in keys:
        await driver.start(key)
    assert len(await driver.list()) == 1000
    await driver.close()
    second = machine.driver_of(SLEEP)
    assert len(await second.list()) == 1000
    for key in keys:
        await second.stop(key)
    # A start or a stop of one key does not look at the others.
    assert listings == 2
    await until_async(lambda: is_empty(second))
