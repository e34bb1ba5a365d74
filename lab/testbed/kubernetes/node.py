"""All parts of a cluster, as the first process of namespaces made for it: `python -m ... .node DIRECTORY`.

The keeper (keeper.py) starts it. It arranges mounts and network for itself, starts everything, says so in one line of
JSON, and then starts an add-on for each process that asks at the socket. When its standard input ends, it ends, and the
kernel ends all that is left in the namespaces: containers, mounts, wires and packet filter rules.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from testbed.authority import Authority
from testbed.kubernetes import addons, components
from testbed.kubernetes.certificates import key_pair, kubeconfig
from testbed.kubernetes.layout import API_SERVICE, DOMAIN, NODE, SERVICES, Layout
from testbed.kubernetes.processes import Processes, answers, run
from testbed.waiting import until

#: Settings of the kernel that the kubelet insists on, and would change for the whole machine.
SETTINGS = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/keys/root_maxbytes": 25000000,
}
#: This side's end of the wire to the machine.
WIRE = "eth0"


def main() -> None:
    # Orphans of all kinds become children of the first process, which has nothing else to do than to reap them.
    child = os.fork()
    if child:
        while os.wait()[0] != child:
            pass
        return
    threading.Thread(target=work, args=(Path(sys.argv[1]),), daemon=True).start()
    sys.stdin.buffer.read()
    os._exit(0)


def work(directory: Path) -> None:
    try:
        layout = Layout.read(directory)
        arrange_mounts(layout)
        arrange_network(layout)
        node = Node(layout)
        node.start()
    except Exception as error:  # noqa: BLE001 -- whatever it is, the one who waits for this line must know
        print(json.dumps({"error": str(error) or repr(error)}), flush=True)
        return
    # Not before it can be asked: who reads this line may ask at once.
    node.serve(lambda: print(json.dumps({"ready": True}), flush=True))


def arrange_mounts(layout: Layout) -> None:
    """Everything that writes to fixed places writes to places of its own; settings of the kernel are out of reach."""
    run("mount", "--make-rshared", "/")
    run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    for path in ("/var/lib", "/var/log"):
        over = layout.state / "over" / path.replace("/", "-")
        (over / "upper").mkdir(parents=True)
        (over / "work").mkdir()
        options = f"lowerdir={path},upperdir={over}/upper,workdir={over}/work"
        run("mount", "-t", "overlay", "-o", options, "overlay", path)
    run("mount", "--bind", "/proc/sys", "/proc/sys")
    # Those of the network are the namespace's own.
    run("mount", "--bind", "/proc/sys/net", "/proc/sys/net")
    run("mount", "-o", "remount,bind,ro", "/proc/sys")
    for name, value in SETTINGS.items():
        shown = layout.state / "settings" / name
        shown.parent.mkdir(parents=True, exist_ok=True)
        shown.write_text(f"{value}\n")
        run("mount", "--bind", str(shown), f"/proc/sys/{name}")


def arrange_network(layout: Layout) -> None:
    """One wire to the machine, and no route to anywhere else."""
    until(lambda: WIRE in run("ip", "-o", "link"), what="the wire to the machine")
    run("ip", "link", "set", "lo", "up")
    run("ip", "address", "add", f"{layout.address}/30", "dev", WIRE)
    run("ip", "link", "set", WIRE, "up")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    # A packet needs a route before the proxy's rules can turn it to a pod. One that none of them took is refused at
    # once: it has nowhere to go.
    run("ip", "route", "add", SERVICES, "dev", "lo", "src", layout.address)
    for chain in ("OUTPUT", "FORWARD"):
        reset = ("-p", "tcp", "-j", "REJECT", "--reject-with", "tcp-reset")
        run("iptables", "--wait", "-A", chain, "-d", SERVICES, *reset)
        run("iptables", "--wait", "-A", chain, "-d", SERVICES, "-j", "REJECT")


class Node:
    """The cluster's processes."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.processes = Processes(layout.log)
        self.authority = Authority(layout.certificates, "kubernetes")

    def start(self) -> None:
        """Starts everything, and returns when pods can be made."""
        layout, processes = self.layout, self.processes
        for name, text in components.configuration(layout).items():
            layout.config(name).parent.mkdir(parents=True, exist_ok=True)
            layout.config(name).write_text(text)
        processes.start("etcd", components.etcd(layout))
        processes.start("containerd", components.containerd(layout))
        self._start_control_plane()
        processes.wait("containerd", layout.containerd.exists)
        processes.start("kubelet", components.kubelet(layout))
        processes.start("proxy", components.proxy(layout))
        processes.start("dns", components.dns(layout))
        ready = 'jsonpath={.status.conditions[?(@.type=="Ready")].status}'
        processes.wait("kubelet", lambda: self._says("True", "get", "node", NODE, "-o", ready))
        account = ("-n", "default", "get", "serviceaccount", "default", "-o", "name")
        processes.wait("controller-manager", lambda: self._says("serviceaccount/default", *account))
        processes.wait("proxy", lambda: f"-d {API_SERVICE}/32 " in run("iptables", "--wait", "-t", "nat", "-S"))
        processes.wait("dns", lambda: _listens(layout.address, 53))

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return run(
            str(self.layout.kubernetes / "kubectl"), f"--kubeconfig={self.layout.kubeconfig}", *arguments, stdin=stdin
        )

    def serve(self, ready: Callable[[], None]) -> None:
        """Does what is asked for, a line each, for ever; calls `ready` once it can be asked."""
        with socket.create_server(str(self.layout.requests), family=socket.AF_UNIX) as server:
            os.chown(self.layout.requests, self.layout.user, self.layout.group)
            self.layout.requests.chmod(0o600)
            ready()
            while True:
                connection, _ = server.accept()
                with connection, connection.makefile("rw") as stream:
                    stream.write(json.dumps(self._answer(json.loads(stream.readline()))) + "\n")

    def _answer(self, request: dict[str, str]) -> dict[str, str]:
        try:
            match request:
                case {"do": "metrics-server", "programs": programs}:
                    addons.start_metrics_server(self, Path(programs))
                case {"do": "keda", "programs": programs}:
                    addons.start_keda(self, Path(programs))
                case {"do": "signal", "part": part, "number": number}:
                    self.processes.signal(part, int(number))
                case {"do": "start again", "part": part}:
                    self.processes.start_again(part)
        except Exception as error:  # noqa: BLE001 -- whatever it is, the one who asked must know
            return {"error": str(error) or repr(error)}
        return {}

    def _start_control_plane(self) -> None:
        layout, authority = self.layout, self.authority
        key_pair(layout.certificates, "tokens")
        service = "kubernetes.default.svc"
        serving = authority.issue(
            "kube-apiserver",
            file="api-server",
            addresses=("127.0.0.1", layout.address, API_SERVICE),
            hosts=("localhost", "kubernetes", "kubernetes.default", service, f"{service}.{DOMAIN}"),
        )
        kubelet = authority.issue("kubelet-client", organization="system:masters")
        front = authority.issue("front-proxy")
        for file, name, organization in (
            ("admin", "admin", "system:masters"),
            ("dns", "dns", "system:masters"),
            ("controller-manager", "system:kube-controller-manager", ""),
            ("scheduler", "system:kube-scheduler", ""),
            ("proxy", "system:kube-proxy", ""),
            ("node", f"system:node:{NODE}", "system:nodes"),
        ):
            user = authority.issue(name, file=file, organization=organization)
            layout.config(f"{file}.kubeconfig").write_text(kubeconfig(layout.server, authority.cacertfile, user))
        layout.kubeconfig.touch(mode=0o600)
        layout.kubeconfig.write_text(layout.config("admin.kubeconfig").read_text())
        os.chown(layout.kubeconfig, layout.user, layout.group)
        self.processes.wait("etcd", lambda: answers(f"{components.ETCD}/health"))
        self.processes.start("api-server", components.api_server(layout, serving, kubelet, front))
        self.processes.wait("api-server", lambda: answers(f"{layout.server}/readyz", authority.cacertfile))
        self.processes.start("controller-manager", components.controller_manager(layout))
        self.processes.start("scheduler", components.scheduler(layout))

    def _says(self, wanted: str, *arguments: str) -> bool:
        try:
            return self.kubectl(*arguments).strip() == wanted
        except RuntimeError:
            return False


def _listens(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=2).close()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
