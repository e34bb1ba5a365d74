"""Three RabbitMQ nodes of one version on this machine, joined to a cluster: for what a single broker cannot show.

Each node is a `Broker` with data and ports of its own. They share the password of the administrator, the Erlang
cookie, and one epmd, which belongs to the cluster and not to a node: nodes that are killed leave it running. A
node learns that epmd's port from `rabbitmq-env.conf`. Its own settings name another port, because the tool that starts
a node refuses to where a port that they name is taken.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from testbed.broker import Broker, BrokerFailed, configure, read_password, root_file_system
from testbed.suite import only_in_test_all

SUDO = [] if os.geteuid() == 0 else ["sudo", "-n"]
#: Offset of the cluster's epmd in the first node's block of ports: the first that the node itself has no use for.
EPMD_OFFSET = 6
#: How often a node is started before its failure is raised.
START_ATTEMPTS = 4


class BrokerCluster:
    """A cluster whose nodes the test may stop, kill and start again; each is a `Broker`."""

    def __init__(self, version: str, size: int = 3) -> None:
        only_in_test_all("a cluster of RabbitMQ nodes")
        self.nodes = [Broker(version) for _ in range(size)]
        first = self.nodes[0]
        for node in self.nodes:
            for secret in ("admin.password", "data/.erlang.cookie"):
                _write(node.directory / secret, _read(first.directory / secret))
            # The configuration has the password in it.
            configure(node.directory, version, node.amqp_port)
            node.admin_password = read_password(node.directory)
            conf = node.directory / "etc/rabbitmq.conf"
            _write(conf, _read(conf) + self._cluster_settings())
            _write(node.directory / "etc/rabbitmq-env.conf", f"export ERL_EPMD_PORT={first.amqp_port + EPMD_OFFSET}\n")
        self._epmd = _epmd(version, first.amqp_port + EPMD_OFFSET)
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    def _cluster_settings(self) -> str:
        lines = ["cluster_formation.peer_discovery_backend = classic_config", "cluster_name = osrdyne-test"]
        names = [name_of(node) for node in self.nodes]
        lines += [f"cluster_formation.classic_config.nodes.{number} = {name}" for number, name in enumerate(names, 1)]
        return "\n".join([*lines, ""])

    def start(self, nodes: Iterable[Broker] | None = None) -> None:
        """Start nodes, all by default, at the same time: a node of a cluster that was down waits for others."""
        _together(_start, self.nodes if nodes is None else nodes)

    def stop(self, nodes: Iterable[Broker]) -> None:
        """End nodes in good order, one after the other."""
        for node in nodes:
            node.stop()

    def kill(self, nodes: Iterable[Broker]) -> None:
        """End nodes by SIGKILL, within a millisecond of each other."""
        doomed = [*nodes]
        for node in doomed:
            kill_now(node)
        _together(Broker.kill, doomed)

    def close(self) -> None:
        """End all nodes and remove their data."""
        _together(Broker.close, self.nodes)
        assert self._epmd.stdin is not None
        self._epmd.stdin.close()
        self._epmd.wait()

    def __enter__(self) -> BrokerCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def name_of(node: Broker) -> str:
    """Return the name of a node in Erlang and in the management API."""
    return f"rabbit-{node.amqp_port}@localhost"


def kill_now(node: Broker) -> None:
    """Send SIGKILL at once; `Broker.kill` starts a program for that, which takes a tenth of a second."""
    pid = int((node.directory / "pid").read_text().split()[0])
    if SUDO:
        subprocess.run([*SUDO, "kill", "-KILL", str(pid)], check=True)
    else:
        os.kill(pid, signal.SIGKILL)


def _start(node: Broker) -> None:
    """Start a node; again where it ended, as one of 4.0 (Mnesia) does when another is just starting."""
    for _ in range(START_ATTEMPTS - 1):
        with contextlib.suppress(BrokerFailed):
            return node.start()
    return node.start()


def _epmd(version: str, port: int) -> subprocess.Popen[str]:
    """Start an epmd that ends when its standard input closes, as it does when this process ends."""
    root = Path(root_file_system(version))
    program = next(root.glob("usr/lib/erlang/erts-*/bin/epmd"))
    command = ["chroot", str(root), f"/{program.relative_to(root)}", "-port", str(port), "-address", "127.0.0.1"]
    script = f"{shlex.join(command)} & read -r _; kill $!"
    command = [*SUDO, "sh", "-c", script]
    # It would write a line at each probe of its port.
    quiet = subprocess.DEVNULL
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, text=True, start_new_session=True
    )


def _together(act: Callable[[Broker], None], nodes: Iterable[Broker]) -> None:
    with ThreadPoolExecutor() as pool:
        [*pool.map(act, nodes)]


def _read(path: Path) -> str:
    return subprocess.run([*SUDO, "cat", str(path)], check=True, capture_output=True, text=True).stdout


def _write(path: Path, text: str) -> None:
    # Truncates: owner and mode of a file that is there stay as they are.
    subprocess.run([*SUDO, "tee", str(path)], check=True, input=text, text=True, stdout=subprocess.DEVNULL)
