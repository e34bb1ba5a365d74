"""The cluster that other tests stand on is a real one, cannot reach other machines, and goes without a trace."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from testbed.kubernetes.cluster import WORKER_IMAGE, Cluster, ClusterFailed
from testbed.kubernetes.keeper import hierarchies
from testbed.kubernetes.layout import Layout
from testbed.kubernetes.node import SETTINGS
from testbed.waiting import until

# The first run on a machine builds the cluster's programs.
pytestmark = [pytest.mark.xdist_group("kubernetes"), pytest.mark.full]

Object = dict[str, Any]
PROJECT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as started:
        layout = started.layout
        yield started
    # One that ends in good order has left nothing when `close` returns.
    assert not traces(layout)


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace for one test."""
    name = f"t{abs(hash(request.node.name)):x}"
    cluster.kubectl("create", "namespace", name)
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")


def deployment(namespace: str, name: str, *, replicas: int = 1, **more: Any) -> Object:
    """Of workers that only live; `more` goes into the container."""
    container = {
        "name": "worker",
        "image": WORKER_IMAGE,
        "imagePullPolicy": "Never",
        "command": ["python3", "-I", "-S", "-E", "/worker/stub_worker.py"],
        "env": [{"name": "WORKER_KEY", "value": name}],
        **more,
    }
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 5},
            },
        },
    }


def roll_out(cluster: Cluster, namespace: str, *objects: Object) -> None:
    cluster.apply(*objects)
    for manifest in objects:
        if manifest["kind"] == "Deployment":
            cluster.kubectl(
                "-n", namespace, "rollout", "status", f"deployment/{manifest['metadata']['name']}", "--timeout=60s"
            )


def inside(cluster: Cluster, namespace: str, name: str, program: str) -> str:
    """What a Python program prints in a pod of a deployment."""
    return cluster.kubectl("-n", namespace, "exec", f"deployment/{name}", "--", "python3", "-c", program).strip()


def test_a_deployment_runs_pods_with_logs_and_exec(cluster: Cluster, namespace: str) -> None:
    roll_out(cluster, namespace, deployment(namespace, "a"))
    until(lambda: "ready" in cluster.kubectl("-n", namespace, "logs", "deployment/a"))
    assert inside(cluster, namespace, "a", "import os; print(os.environ['WORKER_KEY'])") == "a"


def test_a_change_of_the_template_replaces_the_pods_in_good_order(cluster: Cluster, namespace: str) -> None:
    # Given a deployment with a running pod
    roll_out(cluster, namespace, deployment(namespace, "a"))
    pods = ("-n", namespace, "get", "pods", "-o", "name")
    before = cluster.kubectl(*pods)
    # When its template changes
    roll_out(cluster, namespace, deployment(namespace, "a", env=[{"name": "WORKER_KEY", "value": "b"}]))
    # Then there is another pod, and soon no other
    assert inside(cluster, namespace, "a", "import os; print(os.environ['WORKER_KEY'])") == "b"
    until(lambda: len(cluster.kubectl(*pods).split()) == 1)
    assert cluster.kubectl(*pods) != before


def test_an_image_that_is_missing_is_an_error_that_can_be_read(cluster: Cluster, namespace: str) -> None:
    cluster.apply(deployment(namespace, "a", image="nowhere:1"))
    reason = "jsonpath={.items[*].status.containerStatuses[*].state.waiting.reason}"
    until(lambda: cluster.kubectl("-n", namespace, "get", "pods", "-o", reason) == "ErrImageNeverPull")


def test_an_image_can_be_added_while_the_cluster_runs(cluster: Cluster, namespace: str) -> None:
    cluster.load_image("osrdyne.invalid/added:1", {"/added/it.txt": b"it is there"})
    roll_out(cluster, namespace, deployment(namespace, "a", image="osrdyne.invalid/added:1", command=["sleep", "600"]))
    assert inside(cluster, namespace, "a", "print(open('/added/it.txt').read())") == "it is there"


class GreetingHandler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello, pod")

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def greeter() -> Iterator[int]:
    """Port of this machine's loopback at which something listens."""
    with ThreadingHTTPServer(("127.0.0.1", 0), GreetingHandler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_pods_reach_what_this_machine_forwards_and_nothing_beyond(
    cluster: Cluster, namespace: str, greeter: int
) -> None:
    # Given a pod, and a port of this machine's loopback that is forwarded
    roll_out(cluster, namespace, deployment(namespace, "a"))
    cluster.forward(greeter)
    # Then the pod reaches it
    fetch = f"import urllib.request as u; print(u.urlopen('http://{cluster.gateway}:{greeter}').read().decode())"
    assert inside(cluster, namespace, "a", fetch) == "hello, pod"
    # And neither another machine nor a Service that does not exist: both are refused at once
    for foreign in ("192.0.2.1", "10.96.200.200"):
        connect = f"import socket; socket.create_connection(('{foreign}', 80), timeout=30)"
        with pytest.raises(ClusterFailed, match=r"unreachable|refused"):
            inside(cluster, namespace, "a", connect)


def test_services_are_found_by_name(cluster: Cluster, namespace: str) -> None:
    serve = ["python3", "-m", "http.server", "8080"]
    probe = {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1}
    service: Object = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {"selector": {"app": "a"}, "ports": [{"port": 80, "targetPort": 8080}]},
    }
    roll_out(cluster, namespace, service, deployment(namespace, "a", command=serve, readinessProbe=probe))
    fetch = "import urllib.request as u; print(u.urlopen('http://web/').status)"
    # The proxy programs the Service a moment after the pod is ready.
    until(lambda: fetched(cluster, namespace, fetch) == "200")


def fetched(cluster: Cluster, namespace: str, program: str) -> str:
    try:
        return inside(cluster, namespace, "a", program)
    except ClusterFailed:
        return ""


def test_a_service_account_may_do_what_its_role_allows_and_no_more(cluster: Cluster, namespace: str) -> None:
    cluster.kubectl("-n", namespace, "create", "serviceaccount", "reader")
    cluster.kubectl("-n", namespace, "create", "role", "reader", "--verb=list", "--resource=pods")
    binding = ("create", "rolebinding", "reader", "--role=reader", f"--serviceaccount={namespace}:reader")
    cluster.kubectl("-n", namespace, *binding)
    kubeconfig = cluster.kubeconfig_of(namespace, "reader")
    cluster.kubectl("get", "pods", kubeconfig=kubeconfig)
    with pytest.raises(ClusterFailed, match="Forbidden"):
        cluster.kubectl("get", "secrets", kubeconfig=kubeconfig)


def test_keda_scales_a_deployment(cluster: Cluster, namespace: str) -> None:
    cluster.start_keda()
    roll_out(cluster, namespace, deployment(namespace, "a"))
    always: Object = {"timezone": "Etc/UTC", "start": "0 0 1 1 *", "end": "59 23 31 12 *", "desiredReplicas": "2"}
    scaled: Object = {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": "a", "namespace": namespace},
        "spec": {"scaleTargetRef": {"name": "a"}, "triggers": [{"type": "cron", "metadata": always}]},
    }
    cluster.apply(scaled)
    replicas = "jsonpath={.status.readyReplicas}"
    until(lambda: cluster.kubectl("-n", namespace, "get", "deployment", "a", "-o", replicas) == "2")
    cluster.kubectl("-n", namespace, "delete", "scaledobject", "a")


def test_metrics_are_served(cluster: Cluster) -> None:
    cluster.start_metrics_server()
    until(lambda: "node1" in topped(cluster), every=0.5)


def topped(cluster: Cluster) -> str:
    try:
        return cluster.kubectl("top", "node")
    except ClusterFailed:
        return ""


def test_a_part_of_the_cluster_can_be_away_for_a_while(cluster: Cluster, namespace: str) -> None:
    # Given an API server that is gone
    cluster.signal("api-server", signal.SIGKILL)
    with pytest.raises(ClusterFailed, match="refused"):
        cluster.kubectl("get", "nodes")
    # When it is started again
    cluster.start_again("api-server")
    # Then all goes on
    until(lambda: answered(cluster), what="the API server to answer")
    roll_out(cluster, namespace, deployment(namespace, "a"))


def answered(cluster: Cluster) -> bool:
    try:
        return "node1" in cluster.kubectl("get", "nodes")
    except ClusterFailed:
        return False


OWNER = """
from testbed.kubernetes.cluster import Cluster, WORKER_IMAGE
import sys
with Cluster() as cluster:
    cluster.kubectl("run", "pod", f"--image={WORKER_IMAGE}", "--image-pull-policy=Never", "--", "sleep", "600")
    cluster.kubectl("wait", "--for=condition=Ready", "pod/pod", "--timeout=60s")
    cluster.forward(9)
    print(cluster.directory, flush=True)
    sys.stdin.read()
"""


def traces(layout: Layout) -> list[str]:
    """What is left of a cluster on this machine."""
    found = [str(path) for path in (layout.directory, Path("/sys/class/net", layout.link)) if path.exists()]
    found += [str(point / layout.cgroup) for point in hierarchies() if (point / layout.cgroup).exists()]
    found += [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(layout.directory) in line]
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        found += [words] if str(layout.directory) in words or layout.gateway in words else []
    return found


def test_nothing_is_left_when_its_owner_is_killed(cluster: Cluster) -> None:
    # Given another cluster beside the one of the other tests, with a running pod
    settings = [Path("/proc/sys", name) for name in SETTINGS]
    before = [path.read_text() for path in settings]
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=PROJECT
    ) as owner:
        assert owner.stdout
        layout = Layout.read(Path(owner.stdout.readline().strip()))
        assert len(traces(layout)) > 10
        # When the process that started it is killed
        owner.kill()
    # Then everything of it goes, the machine is set as before, and the other cluster does not mind
    until(lambda: not traces(layout), what="the cluster to leave no trace")
    assert [path.read_text() for path in settings] == before
    assert "node1" in cluster.kubectl("get", "nodes")
