"""Workers that are processes outlive the daemon, and nothing else is mistaken for them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import sys
from collections.abc import Iterator

import pytest

from osrdyne.drivers.base import GroupState
from osrdyne.drivers.subprocess.records import Records
from osrdyne.errors import DriverError
from testbed.waiting import until_async
from tests.drivers.subjects.base import is_empty, listed, next_change
from tests.drivers.subjects.subprocess import STUB, SubprocessSubject

#: A daemon that starts key `a` and then dies by SIGKILL: argument 1 says after how many writes of the record.
DAEMON = """
import asyncio, os, signal, sys
from pathlib import Path
from osrdyne.drivers.subprocess.records import Records
from osrdyne.drivers.subprocess.driver import SubprocessDriver, SubprocessTemplate
from osrdyne_pool.settings import PoolSettings
writes, state, *command = sys.argv[1:]
left = int(writes)
write = Records.write
def counting(self, record):
    global left
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    write(self, record)
Records.write = counting
async def main():
    template = SubprocessTemplate(tuple(command), {"TEMPLATE": "a"})
    driver = SubprocessDriver(PoolSettings("echo", "one"), template, lambda: "amqp://x", Path(state))
    await driver.start("a")
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


async def killed_daemon(machine: SubprocessSubject, *, writes: int) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", DAEMON, str(writes), str(machine.state), *STUB)
    assert await process.wait() == -signal.SIGKILL


async def test_a_worker_outlives_a_killed_daemon_and_is_adopted(machine: SubprocessSubject) -> None:
    await killed_daemon(machine, writes=2)
    worker = machine.process("a")
    driver = machine.driver()
    assert (await listed(driver))["a"].state is GroupState.RUNNING
    await driver.start("a")
    assert machine.process("a") == worker
    # And the exit of a process that is not our child is noticed at once
    worker.kill()
    change = await next_change(driver)
    assert change.key == "a"
    assert change.error is not None
    assert "status unknown" in change.error
    assert await driver.list() == []


async def test_a_worker_whose_pid_was_never_written_down_is_found(machine: SubprocessSubject) -> None:
    # Given a daemon that died between starting a worker and recording its pid
    await killed_daemon(machine, writes=1)
    assert json.loads(machine.record("a").read_bytes())["pid"] is None
    # Then the next one starts no second worker
    driver = machine.driver()
    await driver.start("a")

    async def ready() -> bool:
        return "ready" in await machine.output("a")

    await until_async(ready)
    assert (await machine.output("a")).count('{"osrdyne"') == 1
    assert (await listed(driver))["a"].workers == 1


async def test_an_intent_without_worker_is_forgotten(machine: SubprocessSubject) -> None:
    driver = machine.driver()
    await driver.start("a")
    record = json.loads(machine.record("a").read_bytes())
    await driver.stop("a")
    await until_async(lambda: is_empty(driver))
    machine.record("a").write_text(json.dumps({**record, "pid": None, "start_ticks": None}))
    assert await machine.driver().list() == []


@pytest.mark.parametrize("lie", [{"start_ticks": 1}, {"boot_id": "another boot"}], ids=["reused pid", "reboot"])
async def test_a_process_that_is_not_ours_is_neither_listed_nor_signalled(
    machine: SubprocessSubject, lie: dict[str, object]
) -> None:
    # Given a record whose pid belongs to an unrelated process by now
    first = machine.driver()
    await first.start("a")
    await first.close()
    bystander = machine.process("a")
    record = machine.record("a")
    record.write_text(json.dumps({**json.loads(record.read_bytes()), "worker_id": "gone", **lie}))
    # When a daemon lists, stops and starts the group
    driver = machine.driver()
    assert await driver.list() == []
    await driver.stop("a")
    await driver.start("a")
    # Then that process lives on, and the group has one of its own
    assert bystander.is_running()
    assert machine.process("a") != bystander
    await driver.stop("a")
    await until_async(lambda: is_empty(driver))
    assert bystander.is_running()
    bystander.kill()


async def test_two_daemons_at_once_have_one_worker_between_them(machine: SubprocessSubject) -> None:
    first, second = machine.driver(), machine.driver()
    await first.start("a")
    await second.start("a")
    assert (await machine.output("a")).count('{"osrdyne"') == 1
    # And what one does, the other sees
    await second.stop("a")
    await until_async(lambda: is_empty(first))
    assert await second.list() == []


async def test_a_daemon_does_not_wait_for_one_that_hangs_while_starting(machine: SubprocessSubject) -> None:
    driver = machine.driver()
    await driver.start("a")
    with Records(machine.state, "echo", "one").locked():
        with pytest.raises(DriverError, match="another daemon"):
            await driver.start("b")
        assert (await listed(driver)).keys() == {"a"}
    await driver.start("b")
    assert (await listed(driver)).keys() == {"a", "b"}


async def test_a_record_that_a_person_removed_is_written_again(machine: SubprocessSubject) -> None:
    driver = machine.driver()
    await driver.start("a")
    worker = machine.process("a")
    machine.record("a").unlink()
    assert (await listed(driver)).keys() == {"a"}
    assert machine.process("a") == worker


@pytest.mark.parametrize("content", ["", "[]", "[" * 100_000, '{"key": "a"}', '{"pid": "1"}', '{"key": 3}'])
async def test_a_record_that_cannot_be_read_is_put_aside(machine: SubprocessSubject, content: str) -> None:
    driver = machine.driver()
    machine.record("a").write_text(content)
    await driver.start("b")
    assert (await listed(driver)).keys() == {"b"}
    assert machine.record("a").with_suffix(".unreadable").read_text() == content


@contextlib.contextmanager
def descriptors_left(number: int) -> Iterator[None]:
    """Leaves this process so many descriptors, and gives them all back."""
    limits, taken = resource.getrlimit(resource.RLIMIT_NOFILE), list[int]()
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 50, limits[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        for _ in range(number):
            os.close(taken.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for descriptor in taken:
            os.close(descriptor)


async def test_a_daemon_that_has_no_free_descriptor_forgets_no_worker(machine: SubprocessSubject) -> None:
    first = machine.driver()
    await first.start("a")
    worker = machine.process("a")
    await first.close()
    # When a daemon takes over that has ever so few descriptors
    for number in range(6):
        driver = machine.driver()
        with descriptors_left(number), contextlib.suppress(DriverError):
            assert (await listed(driver)).keys() == {"a"}
        # Then it says so, or lists it; and the record and the worker are as they were
        assert (machine.process("a"), worker.is_running()) == (worker, True)
        await driver.close()
    assert (await listed(machine.driver()))["a"].state is GroupState.RUNNING
