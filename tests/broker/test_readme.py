"""docs/start/quickstart.md, with the worker and the client of README.md; the README shows what it prints."""

from __future__ import annotations

import os
import re
import secrets
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import steps
from testbed.foreign_client import ForeignClient
from testbed.pool import DaemonProcess, Pool
from testbed.waiting import PATIENCE, until
from testbed.workers import MINIMAL
from tests.conftest import Vhost

README = Path(steps.ROOT, "README.md").read_text()
PAGE = Path(steps.ROOT, "docs/start/quickstart.md").read_text()
EXAMPLE = Path(steps.ROOT, "examples/quickstart")
#: What the test does not repeat: the packages are installed in the environment that runs it.
INSTALLING = ("rabbitmqctl", "python3 -m venv", ". ", "pip install", "cd ")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    lines = [line for block in blocks(PAGE, "sh") for line in block.splitlines()]
    return [line for line in lines if not line.startswith(INSTALLING)]


def without_numbers(text: str) -> str:
    return re.sub(r"\d+(\.\d+)?", "N", text)


@cache
def not_root() -> list[str]:
    """What goes before a command so that it runs without root's rights: nothing where the test has none.

    A user namespace maps root to an account without rights. Where the kernel allows none, the commands run like the
    test.
    """
    before = ["unshare", "--user", "--map-user=65534", "--map-group=65534"]
    possible = subprocess.run([*before, "true"], capture_output=True, check=False).returncode == 0
    return before if os.geteuid() == 0 and possible else []


@dataclass
class Shell:
    """A shell of the reader: a folder, and the variables that were exported."""

    folder: Path
    variables: dict[str, str]

    def start(self, command: str, log: Path) -> subprocess.Popen[bytes]:
        with log.open("wb") as file:
            return subprocess.Popen(
                [*not_root(), *shlex.split(command)],
                cwd=self.folder,
                env=self.variables,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def run(self, command: str) -> str:
        log = self.folder / "output.log"
        code = self.start(command, log).wait(timeout=PATIENCE)
        assert code == 0, log.read_text()
        return log.read_text()

    def export(self, line: str) -> None:
        """Do as the shell does with `export NAME=VALUE`, where the value may be another variable."""
        name, _, value = line.removeprefix("export ").partition("=")
        self.variables[name] = self.variables[value[1:]] if value.startswith("$") else value


@pytest.fixture
def programs() -> Path:
    """Where the shell finds what the page installs."""
    return Path(sys.executable).parent


@pytest.fixture
def shell(vhost: Vhost, tmp_path: Path, programs: Path) -> Iterator[Shell]:
    """A copy of the example, and a user of the broker as the page makes it."""
    user, password = f"quickstart-{secrets.token_hex(4)}", secrets.token_hex(8)
    management = vhost.broker.management
    tag = re.search(r"set_user_tags osrdyne (\w+)", PAGE)
    rights = re.search(r"set_permissions --vhost osrdyne osrdyne '(.*)' '(.*)' '(.*)'", PAGE)
    assert tag
    assert rights
    management.put("users", user, body={"password": password, "tags": tag[1]})
    body = dict(zip(("configure", "write", "read"), rights.groups(), strict=True))
    management.put("permissions", vhost.name, user, body=body)
    for name in ("worker.py", "client.py", "declare_pool.py", "settings.toml"):
        (tmp_path / name).write_text((EXAMPLE / name).read_text())
    with (tmp_path / "settings.toml").open("a") as settings:
        settings.write("\n[status]\nport = 0\n")  # other daemons of this machine may have the port of the page
    shell = Shell(tmp_path, {"PATH": f"{programs}:{os.environ['PATH']}"})
    for line in commands():
        if line.startswith("export "):
            line = line.replace("osrdyne:PASSWORD", f"{user}:{password}")
            line = line.replace("localhost:5672/osrdyne", f"127.0.0.1:{vhost.broker.amqp_port}/{vhost.name}")
            shell.export(line.replace("localhost:15672", f"127.0.0.1:{vhost.broker.management_port}"))
    yield shell
    management.delete("users", user)


@pytest.fixture
def daemon_log(shell: Shell) -> Iterator[Path]:
    """The daemon of the page, once its pool is declared; neither it nor its workers are left."""
    assert "5 exchanges, 8 queues" in shell.run("python declare_pool.py core")
    log = shell.folder / "daemon.log"
    process = shell.start("osrdyne daemon --settings settings.toml", log)
    try:
        until(lambda: "info acting" in log.read_text() or process.poll() is not None, what="the daemon acts")
        assert process.poll() is None, log.read_text()
        yield log
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=PATIENCE)
        pids = [int(pid) for pid in re.findall(r"worker started .*\bpid=(\d+)", log.read_text())]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        until(lambda: not [pid for pid in pids if Path(f"/proc/{pid}").exists()], what="the end of the workers")


def test_the_quickstart_without_root_prints_what_the_readme_shows(shell: Shell, daemon_log: Path) -> None:
    # When the reader calls the worker
    printed = shell.run("python client.py")
    # Then two answers come from one worker, which the first call has started, and the README shows the same
    assert without_numbers(printed) in [without_numbers(block) for block in blocks(README, "text")]
    assert daemon_log.read_text().count("worker started") == 1
    # And the status shows the key
    port = re.search(r"status served .*port=(\d+)", daemon_log.read_text())
    assert port
    assert "LAX" in shell.run(f"osrdyne status --url http://127.0.0.1:{port[1]}")


def test_the_steps_of_the_page_are_those_of_the_test() -> None:
    run = [line for line in commands() if not line.startswith("export ")]

    assert run == [
        "python declare_pool.py core",
        "osrdyne daemon --settings settings.toml",
        "python client.py",
        "osrdyne status",
    ]


def test_a_key_with_its_worker_is_served_while_no_daemon_runs(
    make_pool: Callable[[], Pool],
    make_daemon: Callable[..., DaemonProcess],
    make_client: Callable[[Pool], ForeignClient],
) -> None:
    pool = make_pool()
    daemon = make_daemon(pool, worker=MINIMAL)
    client = make_client(pool)
    assert client.ask("LAX").status == "ok"
    # When the daemon is gone
    daemon.stop(signal.SIGKILL)
    # Then requests of that key are answered as before
    assert [client.ask("LAX").status for _ in range(20)] == ["ok"] * 20
