"""`dev.yml` and `playbooks/down.yml` on this machine, with all that they make in a directory of a test's own.

Processes run without systemd, whether this machine has it or not: a test installs no unit here.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from osrdyne_client import Client, Reply
from testbed.ports import PortBlock

PROJECT = Path(__file__).parents[2]
PORTS = ("amqp", "management", "stream", "prometheus", "dist", "epmd", "status")


def run(
    command: list[str], *, env: Mapping[str, str], cwd: Path = PROJECT, timeout: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command that may fail; its standard output and error are one text."""
    return subprocess.run(
        command,
        cwd=cwd,
        env=env,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
    )


@dataclass
class LocalSetup:
    """A pool that answers in capitals. `broker` is the address of a named one, "" where the playbook brings one."""

    directory: Path
    environment: Mapping[str, str]
    broker: str = ""
    variables: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._block = PortBlock()
        self._up = False
        self.ports = {name: self._block.first + offset for offset, name in enumerate(PORTS)}
        without_systemd = {"stat": {"exists": False}}
        variables: dict[str, Any] = {
            "osrdyne_configuration_directory": str(self.directory / "configuration"),
            "osrdyne_state_directory": str(self.directory / "state"),
            "osrdyne_broker_directory": str(self.directory / "broker"),
            "osrdyne_record_directory": str(self.directory / "made"),
            "osrdyne_status_port": self.ports["status"],
            "osrdyne_python": sys.executable,
            "osrdyne_worker_command": [sys.executable, str(PROJECT / "examples/echo_worker.py")],
            "rabbitmq_ports": {name: port for name, port in self.ports.items() if name != "status"},
            "rabbitmq_systemd": without_systemd,
            "daemon_systemd": without_systemd,
            "service_systemd": without_systemd,
            # sudo drops what says where Docker listens.
            "ansible_become_flags": "-H -S -n -E",
            **self.variables,
        }
        self.directory.mkdir(parents=True, exist_ok=True)
        self._given = variables
        self.change()

    def change(self, **variables: Any) -> None:
        """Change variables of the playbooks that run from now on."""
        self._given |= variables
        (self.directory / "variables.json").write_text(json.dumps(self._given))

    def play(self, name: str, *arguments: str) -> str:
        """Output of a playbook; an AssertionError with it where the playbook fails."""
        done = self.attempt(name, *arguments)
        assert done.returncode == 0, f"{name}.yml failed:\n{done.stdout[-6000:]}"
        return done.stdout

    def attempt(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a playbook that may fail."""
        self._up = name == "dev"
        # Of the root, as a reader types it; it imports the one of playbooks/.
        playbook = "dev.yml" if name == "dev" else f"playbooks/{name}.yml"
        command = [f"{Path(sys.executable).parent}/ansible-playbook", playbook, *arguments]
        variables = {"OSRDYNE_BROKER": self.broker, "LC_ALL": "C.UTF-8", "ANSIBLE_NOCOLOR": "1"}
        command += ["-e", f"@{self.directory / 'variables.json'}"]
        return run(command, env={**self.environment, **variables}, timeout=240)

    def call(self, key: str, body: bytes) -> Reply:
        """Ask the pool."""
        with Client(self.text("client.uri"), "airports", timeout=60.0) as client:
            return client.call(key, body)

    def text(self, name: str) -> str:
        """A file of the configuration directory."""
        return (self.directory / "configuration" / name).read_text().strip()

    def close(self) -> None:
        """Leave nothing behind, whatever the test has come to."""
        try:
            # A run that was refused has made nothing that runs.
            if self._up and ((self.directory / "state").exists() or (self.directory / "broker").exists()):
                self.attempt("down")
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)
            if os.geteuid() != 0:
                subprocess.run(["sudo", "-n", "rm", "-rf", str(self.directory)], check=False)
            self._block.release()


def changed(output: str) -> int:
    """How much the recap of a playbook says was changed."""
    return sum(int(number) for number in re.findall(r"changed=(\d+)", output))
