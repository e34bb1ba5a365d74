"""What a worker that is a process is started with, and what is said when it cannot be."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from osrdyne.drivers.base import GroupState, How
from osrdyne.drivers.subprocess import control
from osrdyne.drivers.subprocess.driver import SubprocessDriver, SubprocessTemplate
from osrdyne.errors import DriverError
from osrdyne_protocol.errors import SettingsError
from testbed.waiting import until_async
from tests.drivers.subjects.base import listed
from tests.drivers.subjects.subprocess import STUB, SubprocessSubject


def descriptors(process: psutil.Process) -> dict[str, str]:
    """Returns what each open descriptor of a process leads to."""
    return {path.name: str(path.readlink()) for path in Path(f"/proc/{process.pid}/fd").iterdir()}


async def test_a_worker_has_a_session_of_its_own_and_only_the_environment_it_needs(
    machine: SubprocessSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OSRDYNE_BROKER__AMQP_URI", "amqp://daemon:secret@broker")
    monkeypatch.setenv("LC_TIME", "C.UTF-8")
    template = SubprocessTemplate(STUB, {"MY_OPTION": "é"}, machine.state.parent)
    driver = machine.driver_of(template)
    # A program that is still starting opens and closes the files that it is made of
    await machine.ready(driver, "a")
    worker = machine.process("a")
    [environment] = await machine.environments("a")
    assert environment.keys() - os.environ.keys() >= {"MY_OPTION", "WORKER_KEY"}
    assert environment["PATH"] == os.environ["PATH"]
    assert environment["LC_TIME"] == "C.UTF-8"
    assert "OSRDYNE_BROKER__AMQP_URI" not in environment
    assert not any(name.startswith("PYTEST") for name in environment)
    assert os.getsid(worker.pid) == worker.pid
    assert worker.cwd() == str(machine.state.parent)
    given = descriptors(worker)
    assert given == {"0": "/dev/null", "1": given["1"], "2": given["1"]}
    assert given["1"].startswith("pipe:")


@pytest.fixture
def low_limit() -> Iterator[tuple[int, int]]:
    """This process's limit of open files, low for one test, as a service manager would have set it."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    low = (min(1024, before[0]), before[1])
    control._inherited_open_files.cache_clear()
    resource.setrlimit(resource.RLIMIT_NOFILE, low)
    yield low
    control._inherited_open_files.cache_clear()
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_the_limit_of_open_files_is_raised_for_the_daemon_and_not_for_workers(
    machine: SubprocessSubject, low_limit: tuple[int, int]
) -> None:
    driver = machine.driver()
    await driver.start("a")
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (low_limit[1], low_limit[1])
    assert machine.process("a").rlimit(psutil.RLIMIT_NOFILE) == low_limit


@pytest.mark.parametrize(
    ("template", "says"),
    [
        (
            SubprocessTemplate(("no-such-command",)),
            "command 'no-such-command' or its interpreter was not found in PATH",
        ),
        (SubprocessTemplate(("/no/such/command",)), "command '/no/such/command' or its interpreter was not found;"),
        (SubprocessTemplate((__file__,)), "may not be run by this user; chmod"),
        (SubprocessTemplate(STUB, working_directory=Path("/no/such/place")), "working_directory /no/such/place"),
        (SubprocessTemplate((*STUB, "x" * 4_000_000)), "shorten the command"),
    ],
    ids=["not on PATH", "no file", "not executable", "no directory", "too long"],
)
async def test_a_start_that_fails_says_what_to_do_and_leaves_nothing(
    machine: SubprocessSubject, template: SubprocessTemplate, says: str
) -> None:
    driver = machine.driver_of(template)
    with pytest.raises(DriverError) as refused:
        await driver.start("a")
    assert "key 'a'" in str(refused.value)
    assert says in str(refused.value)
    assert await driver.list() == []
    assert not machine.record("a").exists()


async def test_a_refused_fork_is_explained(machine: SubprocessSubject, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    driver = machine.driver()
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", refuse)
        with pytest.raises(DriverError, match="TasksMax"):
            await driver.start("a")
    await driver.start("a")
    assert (await listed(driver)).keys() == {"a"}


class SlowSpawn:
    """In place of `control.spawn`: a machine that takes as long as the test says to run a new program."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._spawn = control.spawn
        self.began, self.goes_on = threading.Event(), threading.Event()
        monkeypatch.setattr(control, "spawn", self)

    def __call__(self, *arguments: Any, **options: Any) -> control.Identity:
        self.began.set()
        self.goes_on.wait(30)
        return self._spawn(*arguments, **options)


async def test_the_loop_serves_others_while_a_program_is_being_started(
    machine: SubprocessSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, slow = machine.driver(), SlowSpawn(monkeypatch)
    started = asyncio.create_task(driver.start("a"))

    await until_async(slow.began.is_set)
    assert [group.state for group in await driver.list()] == [GroupState.STARTING]
    slow.goes_on.set()
    await started

    assert [group.state for group in await driver.list()] == [GroupState.RUNNING]


async def test_a_stop_waits_for_the_start_of_another_key(
    machine: SubprocessSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = machine.driver()
    await driver.start("a")
    slow = SlowSpawn(monkeypatch)
    started = asyncio.create_task(driver.start("b"))
    await until_async(slow.began.is_set)

    stopped = asyncio.create_task(driver.stop("a"))
    slow.goes_on.set()
    await asyncio.gather(started, stopped)

    await until_async(lambda: has_only(driver, "b"))


async def test_a_start_that_its_caller_gave_up_is_finished_and_its_worker_is_known(
    machine: SubprocessSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, slow = machine.driver(), SlowSpawn(monkeypatch)
    started = asyncio.create_task(driver.start("a"))
    await until_async(slow.began.is_set)

    started.cancel()
    with pytest.raises(asyncio.CancelledError):
        await started
    slow.goes_on.set()
    await driver.close()

    assert machine.process("a").is_running()
    assert [group.state for group in await machine.driver().list()] == [GroupState.RUNNING]


async def test_a_worker_that_ends_while_another_is_being_started_leaves_the_listing(
    machine: SubprocessSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = machine.driver()
    await driver.start("a")
    slow = SlowSpawn(monkeypatch)
    started = asyncio.create_task(driver.start("b"))
    await until_async(slow.began.is_set)
    ends: list[How] = []

    async def read() -> None:
        ends.extend([change.end.how async for change in driver.changes() if change.end is not None])

    reading = asyncio.create_task(read())

    await machine.kill("a")

    await until_async(lambda: has_only(driver, "b"))
    slow.goes_on.set()
    await started
    assert (await listed(driver)).keys() == {"b"}
    await driver.close()
    await reading
    assert ends == [How.SIGNAL]


async def has_only(driver: SubprocessDriver, key: str) -> bool:
    return (await listed(driver)).keys() == {key}


async def test_a_directory_that_others_can_write_to_is_refused(machine: SubprocessSubject) -> None:
    machine.state.mkdir(mode=0o777)
    machine.state.chmod(0o777)
    with pytest.raises(DriverError, match="chmod 700"):
        machine.driver()


async def test_records_and_logs_are_ours_alone(machine: SubprocessSubject) -> None:
    driver = machine.driver()
    await driver.start("a")
    for path in [machine.state, *machine.state.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path


@pytest.mark.parametrize(
    ("fields", "setting"),
    [
        ({"command": ()}, "driver.template.command"),
        ({"command": ("",)}, "driver.template.command"),
        ({"command": ("a\0",)}, "driver.template.command"),
        ({"command": ("a",), "environment": {"A=": ""}}, "driver.template.environment"),
        ({"command": ("a",), "environment": {"A": "\0secret"}}, "driver.template.environment"),
        ({"command": ("a",), "environment": {"WORKER_ID": "mine"}}, "driver.template.environment.WORKER_ID"),
        ({"command": ("a",), "working_directory": Path("here")}, "driver.template.working_directory"),
    ],
)
def test_a_template_that_cannot_work_is_refused(fields: dict[str, object], setting: str) -> None:
    with pytest.raises(SettingsError) as refused:
        SubprocessTemplate(**fields)  # type: ignore[arg-type]
    assert refused.value.path == setting
    assert "secret" not in str(refused.value)


def test_a_templates_environment_is_not_in_its_text() -> None:
    assert "secret" not in repr(SubprocessTemplate(("a",), {"TOKEN": "secret"}))


def test_another_consumer_timeout_is_another_template_as_running_workers_keep_the_old_one() -> None:
    template = SubprocessTemplate(("worker",))
    assert template.hash(1_000) == SubprocessTemplate(("worker",)).hash(1_000)
    assert template.hash(1_000) != template.hash(2_000)
