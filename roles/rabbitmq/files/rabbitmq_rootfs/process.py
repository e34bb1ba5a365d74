"""The processes of one broker: started in private mount and process namespaces, so that nothing of them can
stay.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import pwd
import re
import resource
import shlex
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

from . import plugins
from .failure import Failure
from .instance import ADMIN, HOST, Instance

#: Where the broker finds its plugins, inside the root file system.
PLUGINS = "/tmp/plugins"  # noqa: S108 - a file system of the broker's own
#: Open files that a broker gets at least, where the system lets it: it has a file for each connection and queue.
OPEN_FILES = 65536


def inside(directory: Path, instance: Instance, command: list[str]) -> list[str]:
    """The command that runs `command` in the root file system with the instance's directories in their
    places.

    All mounts are made in a mount namespace of its own, so the shared root file system is never written to
    and nothing needs unmounting.
    """
    account = pwd.getpwnam(instance.user)
    loopback = "-kernel inet_dist_use_interface {127,0,0,1}"
    variables = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/var/lib/rabbitmq",
        "LANG": "C.UTF-8",
        "ERL_EPMD_PORT": str(instance.epmd),
        "ERL_EPMD_ADDRESS": HOST,
        "RABBITMQ_NODENAME": instance.node,
        "RABBITMQ_DIST_PORT": str(instance.dist),
        "RABBITMQ_PLUGINS_DIR": PLUGINS,
        # The Erlang machine takes the place of the start script, so that signals reach it.
        "RUNNING_UNDER_SYSTEMD": "true",
        # Two schedulers instead of one a core: a small broker's memory is mostly their allocators and stacks.
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"+S 2:2 +SDio 4 +A 4 {loopback}",
        "RABBITMQ_CTL_ERL_ARGS": f"+S 1:1 {loopback}",
    }
    links = shlex.join(plugins.directories(Path(instance.root), directory / "etc/enabled_plugins"))
    root, here = shlex.quote(instance.root), shlex.quote(str(directory))
    # It speaks of the root file system's /tmp, not of ours.
    script = f"""
        set -e
        mount --make-rprivate /
        mount --bind {root} {root}
        mount --bind {here}/data {root}/var/lib/rabbitmq
        mount --bind {here}/log {root}/var/log/rabbitmq
        mount --bind {here}/etc {root}/etc/rabbitmq
        mount --bind {here}/etc/hosts {root}/etc/hosts
        mount --rbind /dev {root}/dev
        mount -t proc proc {root}/proc
        mount -t tmpfs -o mode=1777 tmpfs {root}/tmp
        mkdir --mode=755 {root}{PLUGINS}
        ln --symbolic {links} {root}{PLUGINS}
        mount -o remount,bind,ro {root}
        exec chroot --userspec={account.pw_uid}:{account.pw_gid} --groups= {root} \
            env -i {shlex.join(f"{name}={value}" for name, value in variables.items())} \
            {shlex.join(command)}
    """  # noqa: S108
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child=SIGKILL", "sh", "-c", script]


def spawn(directory: Path, instance: Instance) -> subprocess.Popen[bytes]:
    """Starts the broker's processes, in a session of their own so that Ctrl-C at a terminal does not reach
    them.
    """
    busy = [port for port in (*instance.ports(), instance.dist, instance.epmd) if answers(port)]
    if busy:
        raise Failure(f"port {busy[0]} of {HOST} is taken by another program; choose other ports for {directory}")
    allow_files()
    with (directory / "log/console.log").open("ab") as log:
        return subprocess.Popen(
            inside(directory, instance, ["/usr/lib/rabbitmq/bin/rabbitmq-server"]),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd="/",
        )


def allow_files() -> None:
    """Let this process, and what it starts, have `OPEN_FILES` files open, or as many as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= OPEN_FILES:
        return
    most = OPEN_FILES if hard == resource.RLIM_INFINITY else max(hard, OPEN_FILES)
    for limits in ((OPEN_FILES, most), (min(hard, OPEN_FILES), hard)):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            return


def answers(port: int) -> bool:
    with contextlib.closing(socket.socket()) as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) == 0


def ready(directory: Path, instance: Instance) -> bool:
    """Whether the node has finished booting: the administrator gets an answer and every listener is open."""
    token = base64.b64encode(f"{ADMIN}:{(directory / 'admin.password').read_text()}".encode()).decode()
    request = urllib.request.Request(f"http://{HOST}:{instance.management}/api/overview")
    request.add_header("Authorization", f"Basic {token}")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=5):
            return all(answers(port) for port in instance.ports())
    except (OSError, urllib.error.URLError):
        return False


def wait_ready(directory: Path, instance: Instance, process: subprocess.Popen[bytes], timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while not ready(directory, instance):
        if process.poll() is not None or time.monotonic() > deadline:
            why = "ended while starting" if process.poll() is not None else f"is not up after {timeout:.0f} s"
            raise Failure(f"the broker in {directory} {why}; its last words:\n{last_words(directory)}")
        time.sleep(0.1)


def last_words(directory: Path) -> str:
    """The end of the broker's own output, without what could hold a secret."""
    lines: list[str] = []
    for name in ("console.log", "broker.log"):
        with contextlib.suppress(FileNotFoundError):
            lines += (directory / "log" / name).read_text(errors="replace").splitlines()[-15:]
    return "\n".join(re.sub(r"(?i)(pass\w*\W+)\S+", r"\1***", line) for line in lines)


def remember(directory: Path, pid: int) -> None:
    """Keeps a process id with its start time, so that a later process of the same number is not taken for
    it.
    """
    (directory / "pid").write_text(f"{pid} {started_at(pid)}\n")
    (directory / "loaded").write_text(configuration(directory))


def configuration(directory: Path) -> str:
    """A digest of the files that a broker reads at its start."""
    summed = hashlib.sha256()
    for path in [directory / "instance.json", *sorted((directory / "etc").iterdir())]:
        summed.update(path.name.encode() + b"\0" + path.read_bytes())
    return summed.hexdigest()


def outdated(directory: Path) -> bool:
    """Whether the broker runs with another configuration: the command that wrote this one ended before the restart."""
    loaded = directory / "loaded"
    return running(directory) is not None and loaded.exists() and loaded.read_text() != configuration(directory)


def running(directory: Path) -> int | None:
    """Process id of the broker's outermost process, None if it does not run."""
    try:
        pid, since = (directory / "pid").read_text().split()
    except (FileNotFoundError, ValueError):
        return None
    return int(pid) if started_at(int(pid)) == since else None


def started_at(pid: int) -> str:
    """Start time of a process in clock ticks since boot; "" if there is none. Field 22 of proc(5)'s stat."""
    return (stat_fields(pid) or [""] * 20)[19]


def stat_fields(pid: int) -> list[str]:
    """What /proc says of a process, from its state (field 3) on; empty for one that ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    fields = text.rpartition(")")[2].split()
    return [] if fields[0] in "ZX" else fields


def child(pid: int) -> int | None:
    """The broker itself is the only child of the `unshare` that made its namespaces."""
    numbers = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return next((number for number in numbers if stat_fields(number)[1:2] == [str(pid)]), None)


def terminate(pid: int, timeout: float) -> None:
    """Asks the broker to end, and ends it when it has not within `timeout` seconds. Returns once it is gone.

    `unshare` passes no signal on, but takes its whole process namespace with it when it is killed.
    """
    broker = child(pid)
    if broker is not None and timeout > 0:
        with contextlib.suppress(ProcessLookupError):
            os.kill(broker, signal.SIGTERM)
        wait_gone(pid, timeout)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    if not wait_gone(pid, 10):
        raise Failure(f"process {pid} of the broker does not end")


def wait_gone(pid: int, timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while stat_fields(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
