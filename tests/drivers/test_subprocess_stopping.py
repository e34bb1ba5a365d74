"""How a worker that is a process is asked to stop, and what happens when it does not."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace

import psutil

from osrdyne.drivers.subprocess.driver import SubprocessDriver, SubprocessTemplate
from testbed.waiting import until_async
from tests.drivers.subjects.base import next_change
from tests.drivers.subjects.subprocess import STUB, SubprocessSubject


async def ended(process: psutil.Process) -> None:
    """Returns once a process has gone and was reaped."""

    async def gone() -> bool:
        return not process.is_running()

    await until_async(gone)


def patient(machine: SubprocessSubject, grace: float) -> SubprocessDriver:
    return machine.driver_of(replace(SubprocessTemplate(STUB), stop_grace=grace))


async def test_a_worker_that_ignores_sigterm_is_killed_when_its_grace_is_over(machine: SubprocessSubject) -> None:
    driver = patient(machine, 0.3)
    await machine.ready(driver, "deaf")
    before = time.monotonic()
    await driver.stop("deaf")
    change = await next_change(driver)
    assert time.monotonic() - before >= 0.3
    assert change.error is not None
    assert "0.3 s of SIGTERM and was killed" in change.error
    assert await driver.list() == []


async def test_the_grace_goes_on_over_a_restart_of_the_daemon(machine: SubprocessSubject) -> None:
    # Given a worker that was asked to stop 100 s ago, by a former daemon
    first = patient(machine, 1000)
    await machine.ready(first, "deaf")
    await first.stop("deaf")
    await first.close()
    worker, record = machine.process("deaf"), json.loads(machine.record("deaf").read_bytes())
    record["stopping_since"] -= 100
    machine.record("deaf").write_text(json.dumps(record))
    # When the next one allows a minute in all
    second = patient(machine, 60)
    await second.list()
    # Then the worker is killed, and reaped
    await next_change(second)
    await ended(worker)


async def test_sigterm_is_sent_once(machine: SubprocessSubject) -> None:
    count = "import signal,time\nsignal.signal(15, lambda *_: print('asked', flush=True))\nprint('ready', flush=True)"
    driver = machine.driver_of(SubprocessTemplate((sys.executable, "-c", f"{count}\nwhile 1: time.sleep(0.01)")))
    await machine.ready(driver, "a")
    for daemon in (driver, driver, machine.driver()):
        await daemon.stop("a")

    async def asked() -> int:
        return (await machine.output("a")).count("asked")

    assert await until_async(asked) == 1
    # A second one would be seen by the time that a key's whole life has passed.
    await machine.ready(driver, "other")
    assert await asked() == 1


async def test_what_a_worker_leaves_behind_is_killed(machine: SubprocessSubject) -> None:
    driver = machine.driver()
    await machine.ready(driver, "parent")
    [child] = machine.process("parent").children()
    await driver.stop("parent")
    await next_change(driver)
    await ended(child)


async def test_ended_workers_are_reaped(machine: SubprocessSubject) -> None:
    driver = machine.driver()
    await driver.start("crash")
    worker = machine.process("crash")
    await next_change(driver)
    assert not worker.is_running()
