"""Keeps a Docker engine of its own for as long as its standard input is open: `python -m
testbed.dockerd GID`.

It needs root. docker.io is installed by apt where it is missing; dockerd runs as a plain process. The first
line of output is JSON: where the engine listens (for group GID), or why there is none. When its owner ends,
in whatever way, the engine ends with all its containers, and data, bridge, packet filter rules and
forwarding are as they were before. Bridge and rules are this engine's own, so that several test runs on one
machine each have an engine.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil

from testbed import apt
from testbed.commands import command
from testbed.kernel_settings import enough_watchers, forwarding
from testbed.waiting import until


def main() -> None:
    """Starts, waits, puts everything back."""
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # only the end of the input ends us, so that nothing is left half done
    try:
        install()
        with forwarding(), enough_watchers(), bridge() as own, dockerd(int(sys.argv[1]), own) as host:
            print(json.dumps({"host": host}), flush=True)
            sys.stdin.read()
    except (RuntimeError, AssertionError, OSError, subprocess.CalledProcessError) as error:
        print(json.dumps({"error": str(error)}), flush=True)


def install() -> None:
    """Installs the engine where it is missing."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    if all(shutil.which(program, path=path) for program in ("dockerd", "docker", "iptables")):
        return
    apt.install("docker.io", "iptables", "iproute2", why="Docker engine")


@contextlib.contextmanager
def dockerd(group: int, own: str) -> Iterator[str]:
    """The engine on the bridge `own`; yields the address of its socket."""
    folder = Path(tempfile.mkdtemp(prefix="osrdyne-docker-"))
    folder.chmod(0o711)
    host = f"unix://{folder}/docker.sock"
    paths = [f"--data-root={folder}/data", f"--exec-root={folder}/run", f"--pidfile={folder}/pid"]
    network = [f"--bridge={own}", "--iptables=false", "--ip6tables=false", "--ip-forward=false"]
    try:
        with (folder / "log").open("w") as log:
            daemon = subprocess.Popen(
                ["dockerd", *paths, *network, f"--host={host}", f"--group={group}"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            until(lambda: daemon.poll() is not None or answers(host), every=0.2)
            if daemon.poll() is not None:
                raise RuntimeError(f"dockerd ended: {(folder / 'log').read_text()[-1500:]}")
            yield host
        finally:
            stop(daemon, host)
    finally:
        clear(folder)


def stop(daemon: subprocess.Popen[bytes], host: str) -> None:
    """Ends the containers at once, then the engine in good order. One that does neither in time is killed."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        asked = ["docker", "-H", host, "ps", "-q"]
        listed = subprocess.run(asked, check=False, capture_output=True, text=True, timeout=60).stdout.split()
        if listed:
            remove = ["docker", "-H", host, "rm", "-f", *listed]
            subprocess.run(remove, check=False, capture_output=True, timeout=60)
    daemon.terminate()
    try:
        daemon.wait(timeout=60)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


def clear(folder: Path) -> None:
    """Ends, unmounts and removes what an engine that has ended leaves of itself.

    That is little where it ended well: what containers on the host's network have mounted, and at times the process
    that stood beside a container, because the engine gives its containerd two seconds to take leave of that.
    """
    we = psutil.Process()
    named = (
        process
        for process in psutil.process_iter(["cmdline"])
        if str(folder) in " ".join(process.info["cmdline"] or ())
    )
    left = [process for process in named if process not in (we, *we.parents())]
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    until(lambda: not any(map(runs, left)), every=0.05)
    mounted = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for path in sorted((mount for mount in mounted if mount.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "--lazy", path], check=False, capture_output=True)
    shutil.rmtree(folder)


def runs(process: psutil.Process) -> bool:
    """Whether it has not ended; whether its parent has taken note does not matter."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def answers(host: str) -> bool:
    """Whether an engine listens there."""
    return subprocess.run(["docker", "-H", host, "info"], check=False, capture_output=True).returncode == 0


@contextlib.contextmanager
def bridge() -> Iterator[str]:
    """A bridge of this engine alone, whose containers reach what this machine reaches; yields its name."""
    name = f"osrdyne{random.randrange(16**6):06x}"
    network = f"10.{random.randrange(200, 250)}.{random.randrange(256)}"
    rules = [
        ["-t", "nat", "POSTROUTING", "-s", f"{network}.0/24", "!", "-o", name, "-j", "MASQUERADE"],
        ["-t", "filter", "FORWARD", "-i", name, "-j", "ACCEPT"],
        ["-t", "filter", "FORWARD", "-o", name, "-j", "ACCEPT"],
    ]
    command("ip", "link", "add", name, "type", "bridge")
    try:
        command("ip", "address", "add", f"{network}.1/24", "dev", name)
        command("ip", "link", "set", name, "up")
        for rule in rules:
            command("iptables", "--wait", *rule[:2], "-I", *rule[2:])
        yield name
    finally:
        for rule in rules:
            subprocess.run(["iptables", "--wait", *rule[:2], "-D", *rule[2:]], check=False, capture_output=True)
        subprocess.run(["ip", "link", "delete", name], check=False, capture_output=True)


if __name__ == "__main__":
    main()
