"""Keeps a Docker engine of its own for as long as its standard input is open: `python -m
tests.engines.dockerd GID`.

It needs root. docker.io is installed by apt where it is missing; dockerd runs as a plain process. The first
line of output is JSON: where the engine listens (for group GID), or why there is none. When its owner ends,
in whatever way, the engine ends with all its containers, and data, bridge, packet filter rules and
forwarding are as they were before.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.engines.waiting import until

FORWARD = Path("/proc/sys/net/ipv4/ip_forward")
#: Chains that a table of the packet filter has from the start.
CHAINS = {"filter": ("INPUT", "FORWARD", "OUTPUT"), "nat": ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING")}


def main() -> None:
    """Starts, waits, puts everything back."""
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # only the end of the input ends us, so that nothing is left half done
    try:
        install()
        with network_as_before(), dockerd(int(sys.argv[1])) as host:
            print(json.dumps({"host": host}), flush=True)
            sys.stdin.read()
    except (RuntimeError, AssertionError, OSError, subprocess.CalledProcessError) as error:
        print(json.dumps({"error": str(error)}), flush=True)


def install() -> None:
    """Installs the engine where it is missing."""
    if shutil.which("dockerd") and shutil.which("docker") and shutil.which("iptables"):
        return
    apt = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-o", "DPkg::Lock::Timeout=300"]
    subprocess.run([*apt, "update"], check=False, capture_output=True)
    wanted = ["docker.io", "iptables", "iproute2"]
    done = subprocess.run(
        [*apt, "install", "-y", "--no-install-recommends", *wanted], check=False, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"apt-get could not install {', '.join(wanted)}: {done.stderr[-800:]}")


@contextlib.contextmanager
def dockerd(group: int) -> Iterator[str]:
    """The engine; yields the address of its socket."""
    folder = Path(tempfile.mkdtemp(prefix="osrdyne-docker-"))
    folder.chmod(0o711)
    host = f"unix://{folder}/docker.sock"
    paths = [f"--data-root={folder}/data", f"--exec-root={folder}/run", f"--pidfile={folder}/pid"]
    try:
        with (folder / "log").open("w") as log:
            daemon = subprocess.Popen(
                ["dockerd", *paths, f"--host={host}", f"--group={group}"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            until(lambda: daemon.poll() is not None or answers(host), within=60, every=0.2)
            if daemon.poll() is not None:
                raise RuntimeError(f"dockerd ended: {(folder / 'log').read_text()[-1500:]}")
            yield host
        finally:
            stop(daemon, host)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def stop(daemon: subprocess.Popen[bytes], host: str) -> None:
    """Ends the containers at once, then the engine in good order."""
    listed = subprocess.run(["docker", "-H", host, "ps", "-q"], check=False, capture_output=True, text=True).stdout
    if listed.split():
        subprocess.run(["docker", "-H", host, "rm", "-f", *listed.split()], check=False, capture_output=True)
    daemon.terminate()
    try:
        daemon.wait(timeout=60)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


def answers(host: str) -> bool:
    """Whether an engine listens there."""
    return subprocess.run(["docker", "-H", host, "info"], check=False, capture_output=True).returncode == 0


@contextlib.contextmanager
def network_as_before() -> Iterator[None]:
    """Puts back what dockerd changes of the machine's network."""
    rules = subprocess.run(["iptables-save"], check=True, capture_output=True, text=True).stdout
    forward = FORWARD.read_text()
    try:
        yield
    finally:
        subprocess.run(["ip", "link", "delete", "docker0"], check=False, capture_output=True)
        for table, chains in CHAINS.items():
            if f"*{table}" not in rules:  # it had none
                rules += "\n".join((f"*{table}", *(f":{chain} ACCEPT [0:0]" for chain in chains), "COMMIT", ""))
        subprocess.run(["iptables-restore"], check=False, input=rules, text=True, capture_output=True)
        FORWARD.write_text(forward)


if __name__ == "__main__":
    main()
