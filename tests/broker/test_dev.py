"""`osrdyne dev` beside another of its kind, and how signals end it. Its processes and its broker are real."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.waiting import PATIENCE_SECONDS, until
from tests.broker.test_readme import Shell, daemon_log, programs, shell

__all__ = ["daemon_log", "programs", "shell"]

#: Serves, and does not end when it is asked to.
HANGS = """
import time
from osrdyne_worker import run
run(lambda request: b"here")
time.sleep(1000)
"""


@pytest.fixture
def hang_up() -> Iterator[None]:
    """Has SIGHUP end a process, also where the run began with `nohup`: then it is ignored, by what we start as well."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def workers(log: Path) -> list[int]:
    return [int(pid) for pid in re.findall(r"worker started .*\bpid=(\d+)", log.read_text())]


def test_a_second_one_for_the_same_workers_is_refused_and_they_go_on(shell: Shell, daemon_log: Path) -> None:
    shell.run("python core/client.py")

    log = shell.folder / "second.log"
    second = shell.start("osrdyne dev core/worker.py", log)

    assert second.wait(timeout=PATIENCE_SECONDS) == 2
    (line,) = log.read_text().splitlines()
    assert re.fullmatch(r"osrdyne: another osrdyne daemon or `osrdyne dev` runs workers in .*; end it first", line)
    assert [Path(f"/proc/{pid}").exists() for pid in workers(daemon_log)] == [True]


@pytest.mark.usefixtures("hang_up")
def test_a_terminal_that_goes_ends_it_with_its_workers(shell: Shell) -> None:
    log = shell.folder / "dev.log"
    process = shell.start("osrdyne dev core/worker.py", log)
    try:
        until(lambda: "info acting" in log.read_text(), what="the daemon acts")
        shell.run("python core/client.py")

        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGHUP)

        assert process.wait(timeout=PATIENCE_SECONDS) == 0
        assert [pid for pid in workers(log) if Path(f"/proc/{pid}").exists()] == []
    finally:
        process.kill()
        process.wait()


def test_a_second_signal_ends_it_while_a_worker_does_not_end(shell: Shell) -> None:
    (shell.folder / "core/worker.py").write_text(HANGS)
    settings = shell.folder / "core/settings.toml"
    settings.write_text(settings.read_text().replace("[driver.template]", "[driver.template]\nstop_grace = 600"))
    log = shell.folder / "dev.log"
    process = shell.start("osrdyne dev core/worker.py", log)
    try:
        until(lambda: "info acting" in log.read_text(), what="the daemon acts")
        shell.run("python core/client.py")
        process.send_signal(signal.SIGINT)
        until(lambda: "worker asked to stop" in log.read_text(), what="the worker is asked to stop")

        process.send_signal(signal.SIGINT)

        assert process.wait(timeout=PATIENCE_SECONDS) != 0
        assert "Traceback" not in log.read_text()
    finally:
        process.kill()
        process.wait()
        for pid in workers(log):
            os.kill(pid, signal.SIGKILL)
