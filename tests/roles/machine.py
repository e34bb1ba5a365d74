"""A fresh machine as a container, with this checkout and a user's account on it."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import steps
from testbed.broker import root_file_system
from testbed.docker import Docker, container_name
from testbed.waiting import PATIENCE_SECONDS
from tests.roles import local_setup

#: What systemd or namespaces in a container need.
RIGHTS = ("--cap-add=SYS_ADMIN", "--cap-add=NET_ADMIN", "--security-opt=seccomp=unconfined")
#: Where roles/rabbitmq keeps root file systems.
CACHE = "/var/cache/osrdyne/rootfs"
USER, PASSWORD = "dev", "open, sesame"
CHECKOUT = f"/home/{USER}/osrdyne"
PROMPT = re.compile(r"(?:\[sudo\] password for \w+|BECOME password): ")


class Machine:
    """One running machine."""

    def __init__(self, docker: Docker, name: str) -> None:
        self._docker, self._name = docker, name

    def run(self, *command: str, user: str = USER) -> subprocess.CompletedProcess[str]:
        """Run a command where there is no terminal."""
        return local_setup.run(self._exec("--interactive", user, command), env=self._docker.environment)

    def at_terminal(self, *command: str, within: float) -> tuple[int, str]:
        """Exit code and output of a command at a terminal, where a person types the password when asked."""
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            self._exec("--interactive --tty", USER, command),
            env=self._docker.environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        try:
            text = _typing(ours, time.monotonic() + within)
            return process.wait(timeout=PATIENCE_SECONDS), text
        finally:
            process.kill()
            process.wait()
            os.close(ours)

    def processes(self) -> str:
        """Command lines of all that runs."""
        return self.run("ps", "-eo", "args").stdout

    def _exec(self, options: str, user: str, command: tuple[str, ...]) -> list[str]:
        return ["docker", "exec", *options.split(), f"--user={user}", f"--workdir={CHECKOUT}", self._name, *command]


def _typing(terminal: int, deadline: float) -> str:
    """What is shown until the program ends; each question for a password is answered."""
    shown, answered = "", 0
    while time.monotonic() < deadline:
        if not select.select([terminal], [], [], 1)[0]:
            continue
        try:
            shown += os.read(terminal, 65536).decode(errors="replace")
        except OSError:  # the other side is closed
            return shown.replace("\r\n", "\n")
        if len(PROMPT.findall(shown)) > answered:
            answered += 1
            os.write(terminal, f"{PASSWORD}\n".encode())
    raise AssertionError(f"it has not ended; it showed:\n{shown[-4000:]}")


@contextlib.contextmanager
def machine(docker: Docker, suite: str) -> Iterator[Machine]:
    """A machine of a Debian release without systemd, whose user has a sudo that asks for a password."""
    name = container_name("machine")
    root = root_file_system("4.0")
    # Made beforehand, as on the second machine of an office that shares its cache.
    shared = f"--volume={root}:{CACHE}/{Path(root).name}:ro"
    docker("run", "--detach", "--init", f"--name={name}", *RIGHTS, shared, docker.machine(suite), "sleep", "infinity")
    try:
        docker("exec", name, "useradd", "--create-home", "--shell=/bin/bash", "--groups=sudo", USER)
        docker("exec", name, "sh", "-c", f"echo '{USER}:{PASSWORD}' | chpasswd")
        _copy_checkout(docker, name)
        yield Machine(docker, name)
    finally:
        docker("rm", "--force", "--volumes", name)


def _copy_checkout(docker: Docker, name: str) -> None:
    docker("exec", f"--user={USER}", name, "mkdir", CHECKOUT)
    with subprocess.Popen(["tar", "-c", "-C", str(steps.ROOT), *steps.tracked()], stdout=subprocess.PIPE) as tar:
        unpack = ["docker", "exec", "--interactive", f"--user={USER}", name, "tar", "-x", "-C", CHECKOUT]
        done = subprocess.run(unpack, env=docker.environment, check=False, stdin=tar.stdout, capture_output=True)
    assert done.returncode == 0, done.stderr
