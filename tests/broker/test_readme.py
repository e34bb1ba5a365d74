"""docs/start/quickstart.md: its commands write, run, change and remove a pool; the README shows what a call prints."""

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
from testbed.pool import STATISTICS_INTERVAL, DaemonProcess, Pool
from testbed.waiting import PATIENCE_SECONDS, until
from testbed.workers import MINIMAL
from tests.conftest import Vhost

README = Path(steps.ROOT, "README.md").read_text()
PAGE = Path(steps.ROOT, "docs/start/quickstart.md").read_text()
#: What the test does not repeat: the packages are installed in the environment that runs it.
INSTALLING = ("rabbitmqctl", "pip install")


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
        words = shlex.split(command)
        own = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
        with log.open("wb") as file:
            return subprocess.Popen(
                [*not_root(), *words[len(own) :]],
                cwd=self.folder,
                env=self.variables | own,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def run(self, command: str) -> str:
        log = self.folder / "output.log"
        code = self.start(command, log).wait(timeout=PATIENCE_SECONDS)
        assert code == 0, log.read_text()
        return log.read_text()


@pytest.fixture
def programs() -> Path:
    """Where the shell finds what the page installs."""
    return Path(sys.executable).parent


@pytest.fixture
def shell(vhost: Vhost, tmp_path: Path, programs: Path) -> Iterator[Shell]:
    """A user of the broker as the page makes it, and the folder with a pool that the page has written."""
    user, password = f"quickstart-{secrets.token_hex(4)}", secrets.token_hex(8)
    management = vhost.broker.management
    tag = re.search(r"set_user_tags osrdyne (\w+)", PAGE)
    rights = re.search(r"set_permissions --vhost osrdyne osrdyne '(.*)' '(.*)' '(.*)'", PAGE)
    assert tag
    assert rights
    management.put("users", user, body={"password": password, "tags": tag[1]})
    body = dict(zip(("configure", "write", "read"), rights.groups(), strict=True))
    management.put("permissions", vhost.name, user, body=body)
    tmp_path.chmod(0o777)
    shell = Shell(tmp_path, {"PATH": f"{programs}:{os.environ['PATH']}"})
    (writing,) = [line for line in commands() if "osrdyne new" in line]
    writing = writing.replace("osrdyne:PASSWORD", f"{user}:{password}")
    writing = writing.replace("localhost:5672/osrdyne", f"127.0.0.1:{vhost.broker.amqp_port}/{vhost.name}")
    shell.run(f"OSRDYNE_BROKER_MANAGEMENT=http://127.0.0.1:{vhost.broker.management_port} {writing}")
    settings = tmp_path / "core/settings.toml"
    # Other daemons of this machine may have the port of the page.
    settings.write_text(
        settings.read_text().replace(
            "[broker]", f"[status]\nport = 0\n[broker]\nstatistics_interval = {STATISTICS_INTERVAL}"
        )
    )
    yield shell
    management.delete("users", user)


@pytest.fixture
def daemon_log(shell: Shell) -> Iterator[Path]:
    """What `osrdyne dev` of the page prints, once its daemon acts; at its end, no worker is left."""
    log = shell.folder / "daemon.log"
    process = shell.start("osrdyne dev core/worker.py", log)
    try:
        until(lambda: "info acting" in log.read_text() or process.poll() is not None, what="the daemon acts")
        assert process.poll() is None, log.read_text()
        yield log
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=PATIENCE_SECONDS) == 0
        pids = [int(pid) for pid in re.findall(r"worker started .*\bpid=(\d+)", log.read_text())]
        assert pids
        assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []
    finally:
        process.kill()
        process.wait()


def test_the_quickstart_without_root_prints_what_the_readme_shows(shell: Shell, daemon_log: Path) -> None:
    # When the reader calls the worker
    printed = shell.run("python core/client.py")
    # Then two answers come from one worker, which the first call has started, and the README shows the same
    assert without_numbers(printed) in [without_numbers(block) for block in blocks(README, "text")]
    assert daemon_log.read_text().count("worker started") == 1
    # And the status shows the key
    port = re.search(r"status served .*port=(\d+)", daemon_log.read_text())
    assert port
    assert "LAX" in shell.run(f"osrdyne status --url http://127.0.0.1:{port[1]}")


def test_the_steps_of_the_page_are_those_of_the_test() -> None:
    assert [line.split("/osrdyne ")[-1] for line in commands()] == [
        "osrdyne new core",
        "osrdyne dev core/worker.py",
        "python core/client.py",
        "osrdyne pool remove --settings settings.toml --with-messages",
    ]


def test_a_worker_whose_file_changes_is_started_again_its_output_is_shown_and_no_request_fails(
    shell: Shell, daemon_log: Path
) -> None:
    shell.run("python core/client.py")
    worker = shell.folder / "core/worker.py"
    # When the reader changes the worker, while calls go on
    worker.write_text(worker.read_text().replace("    return f", '    print("asked:", question)\n    return f', 1))
    until(
        lambda: shell.run("python core/client.py") and "LAX | asked: first" in daemon_log.read_text(), what="the change"
    )
    # Then one worker followed the other
    assert daemon_log.read_text().count("worker started") == 2
    assert "exited with status 0" in daemon_log.read_text()


def test_the_last_command_of_the_page_removes_the_pool(shell: Shell, vhost: Vhost) -> None:
    settings = shell.folder / "core/settings.toml"
    (line,) = [line for line in commands() if line.startswith("osrdyne pool remove")]
    within = Shell(shell.folder / "core", shell.variables)
    within.run(f"osrdyne pool apply --settings {settings.name}")
    assert len(vhost.broker.management.get("queues", vhost.name)) == 8

    within.run(line)

    assert vhost.broker.management.get("queues", vhost.name) == []


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
