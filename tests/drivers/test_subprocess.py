"""What is special of workers that are processes: they outlive the daemon, and nothing else is mistaken for them."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from osrdyne.drivers import Change, GroupState
from osrdyne.drivers.processes import control
from osrdyne.drivers.processes.records import Records
from osrdyne.drivers.subprocess import SubprocessDriver, SubprocessTemplate
from osrdyne.errors import DriverError
from osrdyne_protocol.errors import SettingsError
from tests.drivers.subjects import STUB, SubprocessSubject, listed, until

SLEEP = SubprocessTemplate(("sleep", "1000"))


async def next_change(driver: SubprocessDriver) -> Change:
    async with asyncio.timeout(20):
        return await anext(aiter(driver.changes()))


async def ended(process: psutil.Process) -> None:
    """Returns once a process has gone and was reaped."""

    async def gone() -> bool:
        return not process.is_running()

    await until(gone)


# -- outliving the daemon

#: A daemon that starts key `a` and then dies by SIGKILL: argument 1 says after how many writes of the record.
DAEMON = """
import asyncio, os, signal, sys
from pathlib import Path
from osrdyne.drivers.processes.records import Records
from osrdyne.drivers.subprocess import SubprocessDriver, SubprocessTemplate
from osrdyne_protocol.settings import PoolSettings
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

    await until(ready)
    assert (await machine.output("a")).count('{"osrdyne"') == 1
    assert (await listed(driver))["a"].workers == 1


async def test_an_intent_without_worker_is_forgotten(machine: SubprocessSubject) -> None:
    driver = machine.driver()
    await driver.start("a")
    record = json.loads(machine.record("a").read_bytes())
    await driver.stop("a")
    await until(lambda: _is_empty(driver))
    machine.record("a").write_text(json.dumps({**record, "pid": None, "start_ticks": None}))
    assert await machine.driver().list() == []


async def _is_empty(driver: SubprocessDriver) -> bool:
    return await driver.list() == []


@pytest.mark.parametrize("lie", [{"start_ticks": 1}, {"boot_id": "another boot"}], ids=["reused pid", "reboot"])
async def test_a_process_that_is_not_ours_is_neither_listed_nor_signalled(
    machine: SubprocessSubject, lie: dict[str, object]
) -> None:
    # Given a record whose pid means somebody else's process by now
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
    await until(lambda: _is_empty(driver))
    assert bystander.is_running()
    bystander.kill()


async def test_two_daemons_at_once_have_one_worker_between_them(machine: SubprocessSubject) -> None:
    first, second = machine.driver(), machine.driver()
    await first.start("a")
    await second.start("a")
    assert (await machine.output("a")).count('{"osrdyne"') == 1
    # And what one does, the other sees
    await second.stop("a")
    await until(lambda: _is_empty(first))
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


async def test_a_record_that_somebody_removed_is_written_again(machine: SubprocessSubject) -> None:
    driver = machine.driver()
    await driver.start("a")
    worker = machine.process("a")
    machine.record("a").unlink()
    assert (await listed(driver)).keys() == {"a"}
    assert machine.process("a") == worker


@pytest.mark.parametrize("content", ["", "[]", '{"key": "a"}', '{"pid": "1"}', '{"key": 3}'])
async def test_a_record_that_cannot_be_read_is_put_aside(machine: SubprocessSubject, content: str) -> None:
    driver = machine.driver()
    machine.record("a").write_text(content)
    await driver.start("b")
    assert (await listed(driver)).keys() == {"b"}
    assert machine.record("a").with_suffix(".unreadable").read_text() == content


# -- stopping


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

    assert await until(asked) == 1
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


# -- starting


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
    await driver.start("a")
    worker = machine.process("a")
    [environment] = await machine.environments("a")
    assert environment.keys() - os.environ.keys() >= {"MY_OPTION", "WORKER_KEY"}
    assert environment["PATH"] == os.environ["PATH"]
    assert environment["LC_TIME"] == "C.UTF-8"
    assert "OSRDYNE_BROKER__AMQP_URI" not in environment
    assert not any(name.startswith("PYTEST") for name in environment)
    assert os.getsid(worker.pid) == worker.pid
    assert worker.cwd() == str(machine.state.parent)
    assert descriptors(worker) == {"0": "/dev/null", "1": str(machine.log("a")), "2": str(machine.log("a"))}


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


# -- exits and logs


async def test_an_exit_tells_status_time_log_and_last_line_without_the_password(machine: SubprocessSubject) -> None:
    driver = machine.driver()
    await driver.start("crash")
    change = await next_change(driver)
    assert change.error is not None
    assert change.error.startswith("worker exited with status 3 after 0.")
    assert change.error.endswith(f"see {machine.log('crash')}: cannot reach amqp://worker:***@broker.invalid/vhost")


async def test_a_signal_is_named(machine: SubprocessSubject) -> None:
    driver = machine.driver()
    await driver.start("a")
    machine.process("a").kill()
    change = await next_change(driver)
    assert change.error is not None
    assert "was killed by SIGKILL (9, perhaps by the kernel for want of memory)" in change.error


async def test_a_log_is_appended_to_and_names_the_key(machine: SubprocessSubject) -> None:
    driver = machine.driver()
    for _ in range(2):
        await machine.ready(driver, "a\nb é")
        await driver.stop("a\nb é")
        await until(lambda: _is_empty(driver))
    lines = machine.log("a\nb é").read_text().splitlines()
    assert lines.count("ready") == lines.count("finished") == 2
    headings = [json.loads(line) for line in lines if line.startswith("{")]
    assert [heading["key"] for heading in headings] == ["a\nb é"] * 2
    assert "é" in lines[0]  # as a person would search for it


async def test_logs_keep_to_their_limit_while_the_worker_writes_on(
    machine: SubprocessSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("osrdyne.drivers.subprocess._TIDY_INTERVAL", 0.0)
    chatty = "i=0; while :; do i=$((i+1)); echo line $i; sleep 0.001; done"
    driver = machine.driver_of(SubprocessTemplate(("sh", "-c", chatty), log_limit=2000))
    await driver.start("a")
    old = machine.log("a").with_suffix(".log.1")

    async def trimmed() -> bool:
        await driver.list()
        return old.exists() and "line" in machine.log("a").read_text()

    await until(trimmed)
    assert old.stat().st_size <= 2000
    assert machine.log("a").stat().st_size <= 20_000
    assert '"key": "a"' in machine.log("a").read_text()


async def test_only_so_many_logs_of_ended_groups_are_kept(
    machine: SubprocessSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("osrdyne.drivers.subprocess._TIDY_INTERVAL", 0.0)
    driver = machine.driver_of(SubprocessTemplate(STUB, log_files=2))
    await driver.start("stays")
    for key in ("one", "two", "three"):
        await driver.start(key)
        await driver.stop(key)

        async def gone(key: str = key) -> bool:
            return key not in await listed(driver)

        await until(gone)
    assert {key for key in ("stays", "one", "two", "three") if machine.log(key).exists()} == {"stays", "two", "three"}


async def test_lifecycle_is_logged_without_credentials(
    machine: SubprocessSubject, caplog: pytest.LogCaptureFixture
) -> None:
    driver = machine.driver()
    with caplog.at_level(logging.DEBUG):
        await driver.start("crash")
        await next_change(driver)
    told = {record.getMessage() for record in caplog.records}
    assert {"worker started", "worker ended"} <= told
    assert "pass-word" not in str([record.__dict__ for record in caplog.records])


# -- many


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
    await until(lambda: _is_empty(second))
