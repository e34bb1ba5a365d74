"""A thousand workers cost the daemon little."""

from __future__ import annotations

import time

from osrdyne.drivers.subprocess import SubprocessTemplate
from tests.drivers.subjects.base import is_empty
from tests.drivers.subjects.subprocess import SubprocessSubject
from tests.engines.waiting import until_async

SLEEP = SubprocessTemplate(("sleep", "1000"))


async def test_a_thousand_groups_are_started_listed_and_adopted_quickly(machine: SubprocessSubject) -> None:
    driver = machine.driver_of(SLEEP)
    keys = [f"key-{number}" for number in range(1000)]
    longest, began = 0.0, time.monotonic()
    for key in keys:
        before = time.monotonic()
        await driver.start(key)
        longest = max(longest, time.monotonic() - before)
    started = time.monotonic()
    assert len(await driver.list()) == 1000
    first_listing = time.monotonic()
    await driver.list()
    listing = time.monotonic() - first_listing
    await driver.close()
    adopting = time.monotonic()
    second = machine.driver_of(SLEEP)
    assert len(await second.list()) == 1000
    adopted = time.monotonic() - adopting
    print(f"start {started - began:.2f} s (longest {longest * 1000:.1f} ms), list {listing * 1000:.1f} ms,", end=" ")
    print(f"adopt {adopted * 1000:.1f} ms")
    assert listing < 0.5
    assert adopted < 5
    for key in keys:
        await second.stop(key)
    await until_async(lambda: is_empty(second))
