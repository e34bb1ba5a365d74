"""Every command that the pages about `osrdyne` show does what they say, on a real broker with a real daemon."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

import osrdyne_pool.lint as lint_module
import steps
from osrdyne.commands import lint as lint_command
from osrdyne.commands import lost_queues
from osrdyne_pool import drift as drift_module
from testbed.broker import Broker
from testbed.pool import DaemonProcess, Pool
from testbed.workers import LIBRARY

# One daemon serves the whole module.
pytestmark = pytest.mark.xdist_group("docs-cli")

PAGE = "\n".join(
    Path(steps.ROOT, f"docs/reference/{name}.md").read_text() for name in ("cli", "cli-pool", "cli-replay")
)
ROLES = ("client", "worker", "daemon", "monitor", "operator", "pipeline")
#: Lines that tests of their own run: they need another broker user, or end the pool of this module.
ELSEWHERE = (
    *("osrdyne pool remove", "osrdyne pool apply --settings /etc/osrdyne/core/settings.toml --broker-file"),
    *("osrdyne new", "osrdyne dev"),
)
#: The entry of the poison inventory that the page names.
ENTRY = {"x-osrdyne-poison-id": "6f1c0a9be2d4", "x-osrdyne-poison-key": "LAX", "x-osrdyne-poison-reason": "expired"}
#: Where the page assumes files of an installed pool.
INSTALLED = "/etc/osrdyne/core"


def commands() -> list[str]:
    lines = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
    return [re.sub(r"\s+#.*", "", line) for line in lines if not line.startswith(ELSEWHERE)]


@pytest.fixture(scope="module")
def installed(one_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DaemonProcess, Path]]:
    """A pool as the page assumes it: its daemon runs, its files are there. One version of the broker is enough."""
    broker = one_broker
    vhost, directory = "docs-cli", tmp_path_factory.mktemp("docs")
    broker.management.add_vhost(vhost, broker.admin)
    pool = Pool.on(broker, vhost)
    (directory / "daemon").mkdir()
    daemon = DaemonProcess.of(pool, directory / "daemon", worker=LIBRARY)
    (directory / "client.uri").write_text(pool.client_uri)
    (directory / "operator.uri").write_text(pool.uri(pool.users.operator))
    (directory / "calls.csv").write_text("time,key\n2013-01-01T10:17:00Z,LAX\n")
    (directory / "request.json").write_text('{"question": "board"}')
    address = broker.management_url.replace("://", f"://{broker.admin}:{broker.admin_password}@")
    (directory / "admin.management").write_text(address)
    try:
        daemon.start()
        # The settings as the page has them, with a port that is known. The daemon's own stay as they are: with changed
        # ones it would begin again, and not be ready for a moment.
        settings = (daemon.directory / "settings.toml").read_text()
        port = daemon.url.rpartition(":")[2]
        (directory / "settings.toml").write_text(settings.replace("port = 0", f"port = {port}"))
        yield daemon, directory
    finally:
        daemon.close()
        pool.remove_users()
        broker.management.delete("vhosts", vhost)


def run(line: str, daemon: DaemonProcess, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run a line of the page as a shell does, with the pool's files in the place of installed ones."""
    line = line.replace(INSTALLED, str(directory))
    if line.startswith("osrdyne status") and "--settings" not in line:
        line += f" --url {daemon.url}"
    if "--users" in line:
        users = daemon.pool.users
        line += "".join(f" --user {role}={getattr(users, role)}" for role in ROLES)
    if line.startswith("osrdyne daemon") and "--check" not in line:
        line += " --check"
    if "poison" in line:
        keep_entry(daemon.pool)
    if ("poison replay" in line or "bury" in line) and "--audit" not in line:
        line += " --audit audit.jsonl"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {
        "PATH": path,
        "OSRDYNE_CLIENT_POOL": "core",
        "OSRDYNE_CLIENT_URI_FILE": str(directory / "client.uri"),
        "OSRDYNE_OPERATOR_POOL": "core",
        "OSRDYNE_OPERATOR_URI_FILE": str(directory / "operator.uri"),
    }
    if "--watch" in line:
        return watch(line, directory, environment)
    return subprocess.run(
        ["bash", "-c", line], cwd=directory, env=environment, capture_output=True, text=True, check=False, timeout=60
    )


def watch(line: str, directory: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a line that goes on for ever, until it has printed something twice; then end it as Ctrl-C does."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        ["bash", "-c", f"exec {line}"], cwd=directory, env=environment, stdout=pipe, stderr=pipe, text=True
    ) as process:
        assert process.stdout is not None
        shown = process.stdout.readline() + process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=60)
    return subprocess.CompletedProcess(line, process.returncode, shown + rest, errors)


def keep_entry(pool: Pool) -> None:
    with pika.BlockingConnection(pika.URLParameters(pool.broker.amqp_uri(vhost=pool.vhost))) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", pool.names.poison_queue, b"{}", pika.BasicProperties(headers=dict(ENTRY)))


@pytest.mark.parametrize("line", commands())
def test_a_command_of_the_page_works(line: str, installed: tuple[DaemonProcess, Path]) -> None:
    done = run(line, *installed)

    assert done.returncode == (130 if "--watch" in line else 0), done
    assert done.stderr == ""
    if "osrdyne" in line and "--cast" not in line and "export" not in line:
        assert done.stdout


def test_the_page_explains_every_rule_of_lint() -> None:
    section = PAGE.split("## `osrdyne lint`")[1].split("\n## ")[0]
    shown = {rule for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for rule in re.findall("`(.*?)`", row)}
    sources = [
        Path(str(module.__file__)).read_text() for module in (lint_module, drift_module, lost_queues, lint_command)
    ]
    rules = {rule for source in sources for rule in re.findall(r'Finding\(\s*"([a-z-]+)"', source)}

    assert shown == rules


def test_the_page_explains_every_command() -> None:
    helped = subprocess.run(
        [sys.executable, "-m", "osrdyne.cli", "--help"], capture_output=True, text=True, check=True
    ).stdout
    listed = set(re.findall(r"^  ([a-z]+)  ", helped.split("Commands:")[1], re.MULTILINE))

    # Commands of other packages have a page of their own, which the table names.
    others = {"bus", "jobs", "pipeline", "relay"}
    assert set(re.findall(r"^## `osrdyne ([a-z]+)`", PAGE, re.MULTILINE)) == listed - others
    assert set(re.findall(r"^\| `osrdyne ([a-z]+)` \|", PAGE, re.MULTILINE)) == listed
