"""Keeps a cluster for as long as its standard input is open and empty: `python -m ... .keeper DIRECTORY`.

It needs root, and gives the cluster what stays outside of its namespaces: packages, a control group, one end of a
wire, and a folder. When its owner ends, in whatever way, the namespaces end with all that is in them, and those go,
too. The first line of output is JSON: {"ready": true}, or why there is no cluster.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import random
import secrets
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from testbed import apt
from testbed.commands import command
from testbed.kernel_settings import enough_watchers
from testbed.kubernetes.components import PLUGINS
from testbed.kubernetes.layout import Layout
from testbed.waiting import until

#: Programs, and the packages of Debian that have them. Of a machine with Docker's own packages, some are there.
PROGRAMS = {
    **dict.fromkeys(("containerd", "ctr", "runc"), "containerd"),
    "ip": "iproute2",
    "iptables": "iptables",
    f"{PLUGINS}/ptp": "containernetworking-plugins",
}
PACKAGES = tuple(dict.fromkeys(PROGRAMS.values()))
#: Seconds that the kernel may take to end everything in the namespaces.
ENDING_SECONDS = 60


def main() -> None:
    """Starts, waits, clears away."""
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # only the end of the input ends us, so that nothing is left half done
    directory = Path(sys.argv[1])
    try:
        install()
        layout = lay_out(directory)
        with enough_watchers(), control_group(layout.cgroup), namespaces(layout) as inside:
            while not select.select([sys.stdin], [], [], 0.5)[0]:
                check(inside, layout)
    except (RuntimeError, AssertionError, OSError, subprocess.CalledProcessError) as error:
        print(json.dumps({"error": str(error)}), flush=True)
        sys.stdin.buffer.read(1)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def install() -> None:
    """Installs the packages that are missing."""
    if lacking(PACKAGES):
        apt.install(*lacking(PACKAGES), why="Kubernetes")


def lacking(packages: tuple[str, ...]) -> list[str]:
    """Those of the packages of which a program is missing."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    lacks = {package for program, package in PROGRAMS.items() if not shutil.which(program, path=path)}
    return [package for package in packages if package in lacks]


def lay_out(directory: Path) -> Layout:
    """What the owner asked for in the folder, with addresses that are free."""
    asked = json.loads((directory / "asked.json").read_text())
    paths = {name: Path(asked[name]) for name in ("kubernetes", "etcd", "coredns")}
    gateway, address = free_addresses()
    owner = directory.stat()
    layout = Layout(directory, secrets.token_hex(4), gateway, address, owner.st_uid, owner.st_gid, **paths)
    layout.state.mkdir(mode=0o711)
    layout.save()
    return layout


def free_addresses() -> tuple[str, str]:
    """Two neighbours out of the private addresses that this machine is not connected to."""
    listed = subprocess.run(["ip", "-json", "-4", "route"], check=True, capture_output=True, text=True).stdout
    taken = [ipaddress.ip_network(route["dst"]) for route in json.loads(listed) if route["dst"] != "default"]
    # Others in 10.0.0.0/8 are the Docker engine of the tests (200 and above) and what is inside of the cluster.
    for _ in range(1000):
        start = f"10.{random.randrange(100, 200)}.{random.randrange(256)}.{4 * random.randrange(64)}"
        wire = ipaddress.ip_network(f"{start}/30")
        if not any(wire.overlaps(network) for network in taken):
            first, second = wire.hosts()
            return str(first), str(second)
    raise RuntimeError("no four free addresses between 10.100.0.0 and 10.199.255.255; see `ip route`")


@contextlib.contextmanager
def control_group(name: str) -> Iterator[None]:
    """A group of that name in every hierarchy of the machine."""
    groups = [point / name for point in hierarchies()]
    try:
        for group in groups:
            group.mkdir()
        yield
    finally:
        for group in groups:
            until(partial(removed, group), within=ENDING_SECONDS, every=0.1, what=f"{group} to be empty")


def hierarchies() -> list[Path]:
    """Where control groups can be made: proc_pid_mountinfo(5), cgroups(7)."""
    lines = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    points = [Path(words[4]) for words in lines if words[words.index("-") + 1] in ("cgroup", "cgroup2")]
    return [point for point in points if not os.statvfs(point).f_flag & os.ST_RDONLY]


def removed(group: Path) -> bool:
    """Whether the group is gone with all below it; one that still has a process cannot go."""
    for path, _, _ in os.walk(group, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(path)
    return not group.exists()


@contextlib.contextmanager
def namespaces(layout: Layout) -> Iterator[subprocess.Popen[bytes]]:
    """The cluster, in namespaces of its own that a wire joins to this machine; yields their outermost process."""
    unshare = ["unshare", "--fork", "--kill-child", "--pid", "--mount-proc", "--mount", "--net"]
    inside = subprocess.Popen(
        [*unshare, sys.executable, "-m", "testbed.kubernetes.node", str(layout.directory)],
        stdin=subprocess.PIPE,
        bufsize=0,
    )
    assert inside.stdin
    try:
        ours = os.readlink("/proc/self/ns/net")
        theirs = f"/proc/{inside.pid}/ns/net"
        until(lambda: inside.poll() is not None or os.readlink(theirs) != ours, what="a network namespace")
        check(inside, layout)
        command("ip", "link", "add", layout.link, "type", "veth", "peer", "name", "eth0", "netns", str(inside.pid))
        command("ip", "address", "add", f"{layout.gateway}/30", "dev", layout.link)
        command("ip", "link", "set", layout.link, "up")
        yield inside
    finally:
        inside.stdin.close()
        try:
            # The first process of a namespace is gone only when all others in it are.
            inside.wait(timeout=ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            inside.kill()
            inside.wait()
        # The kernel takes its time to remove a network namespace.
        subprocess.run(["ip", "link", "delete", layout.link], check=False, capture_output=True)


def check(inside: subprocess.Popen[bytes], layout: Layout) -> None:
    """Raises RuntimeError when the cluster has ended by itself."""
    if inside.poll() is not None:
        words = (layout.directory / "keeper.log").read_text(errors="replace")[-2000:]
        raise RuntimeError(f"the cluster's namespaces ended with status {inside.returncode}: {words}")


if __name__ == "__main__":
    main()
