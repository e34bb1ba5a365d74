"""What a person sees of workers that are processes: their exits and their output."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from osrdyne.drivers.base import Change
from osrdyne.drivers.subprocess.driver import SubprocessTemplate
from osrdyne.drivers.subprocess.template import LEAST_LOG
from testbed.docker import _as_root
from testbed.waiting import until_async
from tests.drivers.subjects.base import PASSWORD, is_empty, listed, next_change
from tests.drivers.subjects.subprocess import STUB, SubprocessSubject


async def test_an_exit_is_reported_with_status_time_log_and_last_line_without_the_password(
    machine: SubprocessSubject,
) -> None:
    driver = machine.driver()
    await driver.start("crash")
    change = await next_change(driver)
    assert change.error is not None
    assert re.match(r"worker exited with status 3 after \d+\.\d", change.error)
    assert change.error.endswith(f"see {machine.log('crash')}: cannot reach amqp://worker:***@broker.invalid/vhost")


@pytest.mark.parametrize(
    "wrote",
    [
        pytest.param("." * 195 + PASSWORD, id="where the line is cut at its end"),
        pytest.param(PASSWORD + "." * (4096 - 10), id="where it is cut at its begin"),
    ],
)
async def test_no_part_of_a_password_is_reported(machine: SubprocessSubject, wrote: str) -> None:
    driver = machine.driver_of(SubprocessTemplate(("sh", "-c", f"echo {wrote}; exit 3")))
    await driver.start("a")
    error = (await next_change(driver)).error or ""
    assert "...." in error
    assert PASSWORD[:5] not in error
    assert PASSWORD[-5:] not in error


async def test_a_password_that_cannot_be_printed_is_struck_out_as_well(machine: SubprocessSubject) -> None:
    template = SubprocessTemplate(("printf", "as pass\\033word"))
    driver = machine.driver_of(template, uri="amqp://worker:pass%1Bword@broker.invalid/vhost")
    await driver.start("a")
    assert ((await next_change(driver)).error or "").endswith(": as ***")


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
        await until_async(lambda: is_empty(driver))
    lines = machine.log("a\nb é").read_text().splitlines()
    assert lines.count("ready") == lines.count("finished") == 2
    headings = [json.loads(line) for line in lines if line.startswith("{")]
    assert [heading["key"] for heading in headings] == ["a\nb é"] * 2
    assert "é" in lines[0]  # as a person would search for it


@pytest.mark.parametrize(
    "command", [pytest.param("yes line", id="fast"), pytest.param("while :; do echo line; done", id="line by line")]
)
async def test_logs_keep_to_their_limit_whatever_the_rate_also_while_no_daemon_runs(
    machine: SubprocessSubject, command: str
) -> None:
    driver = machine.driver_of(SubprocessTemplate(("sh", "-c", command), log_limit=LEAST_LOG))
    await driver.start("a")
    await driver.close()
    log, old = machine.log("a"), machine.log("a").with_suffix(".log.1")
    sizes, copies = [0], set()

    def over_or_often_full() -> bool:
        sizes.extend(path.stat().st_size for path in (log, old) if path.exists())
        copies.add(old.stat().st_mtime_ns if old.exists() else 0)
        return max(sizes) > LEAST_LOG or len(copies) > 5

    await until_async(over_or_often_full)
    assert max(sizes) <= LEAST_LOG
    await until_async(lambda: '"key": "a"' in log.read_text())


async def test_what_a_worker_leaves_running_goes_on_writing_to_its_log(machine: SubprocessSubject) -> None:
    wait = "while [ ! -e {} ]; do sleep 0.01; done"
    leaves = f"setsid sh -c 'touch there; {wait.format('go')}; echo later' & {wait.format('there')}; exit 3"
    driver = machine.driver_of(SubprocessTemplate(("sh", "-c", leaves), working_directory=machine.state.parent))
    await driver.start("a")
    assert "status 3" in ((await next_change(driver)).error or "")
    (machine.state.parent / "go").touch()
    await until_async(lambda: machine.log("a").read_text().endswith("later\n"))


async def test_nothing_writes_on_when_a_worker_has_ended(machine: SubprocessSubject) -> None:
    driver = machine.driver()
    await driver.start("crash")
    await next_change(driver)
    await until_async(lambda: not machine.running())


async def test_only_so_many_logs_of_ended_groups_are_kept(
    machine: SubprocessSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("osrdyne.drivers.subprocess.driver._TIDY_INTERVAL_SECONDS", 0.0)
    driver = machine.driver_of(SubprocessTemplate(STUB, log_files=2))
    await driver.start("stays")
    foreign = [machine.log("stays").with_name(name) for name in ("thesis.log", "core-0123.log")]
    for path in foreign:
        path.write_text("mine")
        os.utime(path, (0, 0))
    for key in ("one", "two", "three"):
        await driver.start(key)
        await driver.stop(key)

        async def gone(key: str = key) -> bool:
            return key not in await listed(driver)

        await until_async(gone)
    assert {key for key in ("stays", "one", "two", "three") if machine.log(key).exists()} == {"stays", "two", "three"}
    assert all(path.exists() for path in foreign)


async def test_a_log_that_is_still_written_is_kept_when_its_group_has_ended(
    machine: SubprocessSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("osrdyne.drivers.subprocess.driver._TIDY_INTERVAL_SECONDS", 0.0)
    leaves = "setsid sh -c 'touch there; while [ ! -e go ]; do sleep 0.01; done; echo later' &"
    command = ("sh", "-c", f"{leaves} while [ ! -e there ]; do sleep 0.01; done; exit 3")
    template = SubprocessTemplate(command, working_directory=machine.state.parent, log_files=0)
    driver = machine.driver_of(template)
    await driver.start("a")
    await next_change(driver)
    await driver.list()
    assert machine.log("a").exists()
    (machine.state.parent / "go").touch()

    async def gone() -> bool:
        await driver.list()
        return not machine.log("a").exists()

    await until_async(gone)


async def test_a_closed_driver_has_reported_the_workers_that_ended_before(
    machine: SubprocessSubject, caplog: pytest.LogCaptureFixture
) -> None:
    # What it leaves running keeps its log open, for which a report waits.
    leaves = "setsid sh -c 'touch there; exec sleep 5' & while [ ! -e there ]; do sleep 0.01; done; exit 3"
    driver = machine.driver_of(SubprocessTemplate(("sh", "-c", leaves), working_directory=machine.state.parent))
    found: list[Change] = []

    async def read() -> None:
        found.extend([change async for change in driver.changes()])

    reading = asyncio.create_task(read())
    await driver.start("a")
    await until_async(lambda: not machine.record("a").exists())
    with caplog.at_level(logging.INFO):
        await driver.close()
    await reading
    assert "worker ended" in {record.getMessage() for record in caplog.records}
    assert ["status 3" in (change.error or "") for change in found] == [True]


async def test_an_end_has_the_lines_of_its_own_worker_also_where_the_next_one_runs(
    machine: SubprocessSubject,
) -> None:
    # What it leaves behind keeps its output, so that the report of its end waits for that for a second.
    left_behind = "env -i PATH=$PATH setsid sleep 5 &"
    command = f"echo first $(ls once 2> /dev/null); [ -e once ] && sleep 100; touch once; {left_behind} exit 3"
    driver = machine.driver_of(SubprocessTemplate(("sh", "-c", command), working_directory=machine.state.parent))
    await driver.start("a")
    await until_async(lambda: not machine.record("a").exists())

    await driver.start("a")
    await until_async(lambda: "first once" in machine.log("a").read_text())

    end = (await next_change(driver)).end
    assert end is not None
    assert (end.code, end.output) == (3, ("first",))


def run_as_another_user(code: str, state: Path) -> list[str]:
    """Runs code with a driver, in a process whose user has no other; returns the lines that it prints."""
    head = f"""
import asyncio, encodings.ascii, os, resource, time
from pathlib import Path
import psutil
from osrdyne.drivers.subprocess.driver import SubprocessDriver, SubprocessTemplate
from osrdyne.errors import DriverError
from osrdyne_pool.settings import PoolSettings
os.mkdir({str(state)!r}, 0o700)
os.chown({str(state)!r}, 61_234, 61_234)
os.chdir({str(state)!r})
os.setgroups([]); os.setgid(61_234); os.setuid(61_234)
os.environ["PATH"] = "/usr/bin:/bin"
def driver(command):
    template = SubprocessTemplate(("sh", "-c", command), log_limit={LEAST_LOG})
    return SubprocessDriver(PoolSettings("core"), template, lambda: "amqp://broker.invalid", Path("s").absolute())
"""
    command = _as_root(sys.executable, "-c", head + textwrap.dedent(code))
    ran = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return ran.stdout.decode().splitlines()


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that other users reach."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    yield directory
    subprocess.run(_as_root("rm", "-rf", str(directory)), check=True)


@pytest.mark.parametrize("left", [1, 2, 3])
def test_a_start_whose_log_writer_is_refused_a_process_fails_with_the_reason_and_leaves_none(
    open_directory: Path, left: int
) -> None:
    code = f"""
    resource.setrlimit(resource.RLIMIT_NPROC, ({left}, {left}))
    async def main():
        try:
            await driver("echo ready; exec sleep 100").start("a")
        except DriverError as error:
            print(error)
    asyncio.run(main())
    for child in psutil.Process().children():
        child.wait()
    print("none left")
    """
    reason, none_left = run_as_another_user(code, open_directory / "state")
    assert "raise the limit of processes" in reason
    assert none_left == "none left"


def test_a_worker_goes_on_where_no_process_can_be_made_to_empty_its_log(open_directory: Path) -> None:
    code = """
    async def main():
        wait = "while [ ! -e go ]; do sleep 0.01; done"
        await driver(f"{wait}; yes line | head -c 9000000 && touch done; touch ended").start("a")
        for child in psutil.Process().children():
            if "osrdyne-log" in child.cmdline():
                child.rlimit(psutil.RLIMIT_NPROC, (1, 1))
        Path("go").touch()
        began = time.monotonic()
        while not Path("ended").exists() and time.monotonic() < began + 180:
            await asyncio.sleep(0.01)
        print(Path("done").exists())
    asyncio.run(main())
    [log] = Path("s").rglob("*.log")
    print(log.read_text().splitlines()[-1])
    """
    done, last = run_as_another_user(code, open_directory / "state")
    assert done == "True"
    assert "the system refused a process to empty this log" in last


def test_a_log_keeps_to_the_limit_of_files_that_the_daemon_may_not_raise(open_directory: Path) -> None:
    code = """
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    async def main():
        await driver("yes line | head -c 900000 && touch done; touch ended").start("a")
        began = time.monotonic()
        while not Path("ended").exists() and time.monotonic() < began + 180:
            await asyncio.sleep(0.01)
        print(Path("done").exists())
    asyncio.run(main())
    print(0 < max(log.stat().st_size for log in Path("s").rglob("*.log*")) <= 4096)
    """
    assert run_as_another_user(code, open_directory / "state") == ["True", "True"]


def test_a_log_of_another_user_keeps_no_other_log_from_being_removed(open_directory: Path) -> None:
    # For a user other than root, a file without rights is like the file of another user.
    code = f"""
    from osrdyne.drivers.subprocess.output_files import Logs
    logs = [Path(f"a{{number}}-" + "0" * 32 + ".log") for number in range(3)]
    for log in logs:
        log.touch(0 if log == logs[1] else 0o600)
    Logs(Path("."), {LEAST_LOG}).tidy({{}}, 0)
    print(sum(log.exists() for log in logs))
    """
    assert run_as_another_user(code, open_directory / "state") == ["0"]


def test_a_full_disk_leaves_what_was_written_last(machine: SubprocessSubject, open_directory: Path) -> None:
    disk = open_directory / "disk"
    disk.mkdir()
    options = f"size=64k,mode=0700,uid={os.getuid()}"
    subprocess.run(_as_root("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)), check=True)
    try:
        asyncio.run(_fill(machine, disk))
    finally:
        subprocess.run(_as_root("umount", "--lazy", str(disk)), check=True)


async def _fill(machine: SubprocessSubject, disk: Path) -> None:
    command = f"yes line | head -c 9000000 && touch {machine.state.parent}/done; exec sleep 100"
    template = SubprocessTemplate(("sh", "-c", command), log_limit=60_000, log_directory=disk)
    driver = machine.driver_of(template)
    await driver.start("a")
    await until_async((machine.state.parent / "done").exists)
    await until_async(lambda: sum(path.stat().st_size for path in disk.rglob("*.log*")) > 30_000)
    machine.process("a").kill()
    await driver.close()


async def test_lifecycle_is_logged_without_credentials(
    machine: SubprocessSubject, caplog: pytest.LogCaptureFixture
) -> None:
    driver = machine.driver()
    with caplog.at_level(logging.DEBUG):
        await driver.start("crash")
        await next_change(driver)
    messages = {record.getMessage() for record in caplog.records}
    assert {"worker started", "worker ended"} <= messages
    assert "pass-word" not in str([record.__dict__ for record in caplog.records])
