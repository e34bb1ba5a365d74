"""A real systemd for tests: PID 1 of a container, whose bus and unit files the test process reaches as its own.

What both sides must see under one path is mounted there: this checkout, and a directory with unit files, environment
files and the socket of the bus. Beside the system's manager there is one of a plain user, for programs on the machine.
Only root may use the system's manager from outside, because who asks is known by the number of the account.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import dbus_fast

from testbed import ROOT
from testbed.docker import Docker, DockerFailed, container_name, engine
from testbed.waiting import until

#: Where Python packages are that programs on the machine need: those of them that are Python alone.
PACKAGES = Path(dbus_fast.__file__).parents[1]
#: What systemd as PID 1 needs of a container. The host's network is for a broker that listens on the loopback address.
RIGHTS = (
    *("--cap-add=SYS_ADMIN", "--cap-add=NET_ADMIN", "--security-opt=seccomp=unconfined"),
    *("--cgroupns=host", "--network=host"),
    *("--tmpfs=/run", "--tmpfs=/run/lock", "--tmpfs=/tmp", "--volume=/sys/fs/cgroup:/sys/fs/cgroup:rw"),
)
#: Beside the machine's own packages: a bus for each user's manager, and who may do what.
MORE = ("dbus-user-session", "polkitd")
#: Whose manager the second one is.
USER, UID = "plain", 1000


class Systemd:
    """One machine."""

    def __init__(self, docker: Docker, container: str, directory: Path) -> None:
        self._docker = docker
        self._container = container
        #: Seen by both sides under this path.
        self.directory = directory
        #: Unit files of the system's manager, and of the user's.
        self.units, self.user_units = directory / "units", directory / "user-units"
        #: Address of the system's bus.
        self.bus = f"unix:path={directory}/bus/system_bus_socket"
        host = docker.environment.get("DOCKER_HOST")
        #: The machine's journalctl, without options.
        self.journalctl = ("docker", *(("--host", host) if host else ()), "exec", container, "journalctl")

    def run(self, *command: str) -> str:
        """Output of a command on the machine, as root. Raises `DockerFailed` when it fails."""
        return self._docker("exec", self._container, *command)

    def as_user(self, *command: str) -> subprocess.CompletedProcess[str]:
        """A command as the plain user, as after a login."""
        options = (f"--user={UID}", f"--env=XDG_RUNTIME_DIR=/run/user/{UID}", f"--env=PYTHONPATH={_python_path()}")
        return subprocess.run(
            ["docker", "exec", *options, self._container, *command],
            env=self._docker.environment,
            check=False,
            capture_output=True,
            text=True,
        )


@contextlib.contextmanager
def machine() -> Iterator[Systemd]:
    """A machine that is up, for as long as the context is open."""
    if os.geteuid() != 0:
        raise DockerFailed("a machine whose systemd is reached from outside needs root: run these tests as root")
    directory = Path(tempfile.mkdtemp(prefix="osrdyne-systemd-"))
    try:
        directory.chmod(0o755)
        _write_units(directory)
        with engine() as docker, _container(docker, directory) as container:
            made = Systemd(docker, container, directory)
            until(lambda: _is_up(made), what="systemd in a container")
            made.run("useradd", f"--uid={UID}", "--create-home", USER)
            made.run("loginctl", "enable-linger", USER)
            until(lambda: not made.as_user("busctl", "--user", "status", "org.freedesktop.systemd1").returncode)
            yield made
    finally:
        shutil.rmtree(directory)


@contextlib.contextmanager
def _container(docker: Docker, directory: Path) -> Iterator[str]:
    name = container_name("systemd")
    mounts = [f"--volume={directory}:{directory}", f"--volume={directory}/bus:/run/dbus"]
    mounts += [f"--volume={path}:{path}:ro" for path in {ROOT, PACKAGES}]
    path = f"--env=SYSTEMD_UNIT_PATH={directory}/units:"
    docker("run", "--detach", f"--name={name}", *RIGHTS, *mounts, path, docker.machine("trixie", *MORE))
    try:
        yield name
    finally:
        docker("rm", "--force", "--volumes", name)


def _write_units(directory: Path) -> None:
    for name in ("bus", "units/user@.service.d", "user-units"):
        (directory / name).mkdir(parents=True)
    path = f"SYSTEMD_UNIT_PATH={directory}/user-units:"
    (directory / "units/user@.service.d/tests.conf").write_text(f"[Service]\nEnvironment={path}\n")


def _python_path() -> str:
    ours = (ROOT / "packages" / name for name in ("protocol", "runtime", "pool"))
    return ":".join(map(str, (ROOT, ROOT / "lab", *ours, ROOT / "daemon", PACKAGES)))


def _is_up(machine: Systemd) -> bool:
    with contextlib.suppress(DockerFailed):
        machine.run("systemctl", "is-system-running", "--wait")
        return True
    return False
