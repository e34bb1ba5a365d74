"""Add-ons of a cluster: metrics-server, and KEDA with its operator and metrics adapter.

They run as processes of the node, without images, behind Services whose endpoints are written by hand.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, Protocol

from testbed.authority import Authority
from testbed.kubernetes.building import KEDA_RESOURCES
from testbed.kubernetes.layout import DOMAIN, Layout
from testbed.kubernetes.processes import Processes, answers, run
from testbed.pem import Certificate
from testbed.waiting import until

#: Ports of the two API servers, on the node.
METRICS_PORT, KEDA_PORT = 4443, 16443
#: Address of the operator's health probes.
KEDA_PROBES = "127.0.0.1:18384"
#: Address at which the operator gives metrics to the adapter.
KEDA_METRICS = "127.0.0.1:9666"


class Host(Protocol):
    """What an add-on uses of the node."""

    layout: Layout
    processes: Processes
    authority: Authority

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str: ...


def start_metrics_server(node: Host, programs: Path) -> None:
    """Start it, and return once `kubectl top` is answered. The first figures come 10 to 20 s later."""
    if node.processes.runs("metrics-server"):
        return
    layout = node.layout
    serving = node.authority.issue(
        "metrics-server",
        addresses=(layout.address,),
        hosts=("metrics-server.kube-system.svc", "localhost"),
    )
    _service(node, "kube-system", "metrics-server", METRICS_PORT)
    command = [
        str(programs / "metrics-server"),
        *_api_server_options(layout, serving, METRICS_PORT),
        "--kubelet-insecure-tls",
        "--kubelet-preferred-address-types=InternalIP",
        "--metric-resolution=10s",
        "--kubelet-request-timeout=5s",
    ]
    node.processes.start("metrics-server", command)
    _register(node, "metrics-server", "metrics.k8s.io", "kube-system", "metrics-server", METRICS_PORT)


def start_keda(node: Host, programs: Path) -> None:
    """Start KEDA, and return once it acts upon ScaledObjects. It calls the addresses in triggers from the node."""
    if node.processes.runs("keda-operator"):
        return
    layout = node.layout
    node.kubectl("apply", "-f", "-", stdin=json.dumps(_object("v1", "Namespace", "keda")))
    # Applied by the server: some are larger than the annotation in which a client would keep them.
    files = [f"--filename={programs / name}" for name in KEDA_RESOURCES]
    node.kubectl("apply", "--server-side", "--force-conflicts", *files)
    names = node.kubectl("get", *files, "-o", "name").split()
    until(lambda: _all_are("Established", node, names), what="KEDA's resource definitions to be established")
    serving = node.authority.issue(
        "keda",
        addresses=("127.0.0.1", layout.address),
        hosts=(
            "localhost",
            "keda-metrics-apiserver.keda.svc",
            "keda-operator.keda.svc",
            f"keda-operator.keda.svc.{DOMAIN}",
        ),
    )
    # Operator and adapter look for certificates by these names, in one folder.
    folder = layout.state / "keda"
    folder.mkdir(exist_ok=True)
    for name, source in (
        ("ca.crt", node.authority.cacertfile),
        ("tls.crt", serving.certfile),
        ("tls.key", serving.keyfile),
    ):
        (folder / name).write_bytes(source.read_bytes())
    _service(node, "keda", "keda-metrics-apiserver", KEDA_PORT)
    variables = {
        "POD_NAMESPACE": "keda",
        "KEDA_CLUSTER_OBJECT_NAMESPACE": "keda",
        "WATCH_NAMESPACE": "",
        "KEDA_HTTP_DEFAULT_TIMEOUT": "3000",
    }
    log_options = ("--zap-log-level=info", "--zap-encoder=console")
    operator = [
        str(programs / "keda-operator"),
        f"--kubeconfig={layout.config('admin.kubeconfig')}",
        "--leader-elect=false",
        f"--cert-dir={folder}",
        "--enable-cert-rotation=false",
        f"--metrics-service-bind-address={KEDA_METRICS}",
        "--metrics-bind-address=127.0.0.1:18383",
        f"--health-probe-bind-address={KEDA_PROBES}",
        *log_options,
    ]
    adapter = [
        str(programs / "keda-adapter"),
        *_api_server_options(layout, serving, KEDA_PORT),
        f"--lister-kubeconfig={layout.config('admin.kubeconfig')}",
        f"--cert-dir={folder}",
        f"--metrics-service-address={KEDA_METRICS}",
        "--port=18385",
        *log_options,
    ]
    node.processes.start("keda-operator", operator, **variables)
    node.processes.start("keda-adapter", adapter, **variables)
    node.processes.wait("keda-operator", lambda: answers(f"http://{KEDA_PROBES}/readyz"))
    _register(node, "keda-adapter", "external.metrics.k8s.io", "keda", "keda-metrics-apiserver", KEDA_PORT)


def _api_server_options(layout: Layout, serving: Certificate, port: int) -> list[str]:
    """Return the options that every server of an aggregated API takes."""
    kubeconfig = layout.config("admin.kubeconfig")
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--bind-address={layout.address}",
        f"--secure-port={port}",
        f"--tls-cert-file={serving.certfile}",
        f"--tls-private-key-file={serving.keyfile}",
    ]


def _service(node: Host, namespace: str, name: str, port: int) -> None:
    """Create a Service in front of a port of the node."""
    service = _object("v1", "Service", name, namespace)
    service["spec"] = {"ports": [{"name": "https", "port": 443, "targetPort": port}]}
    endpoints = _object("discovery.k8s.io/v1", "EndpointSlice", f"{name}-1", namespace)
    endpoints["metadata"]["labels"] = {"kubernetes.io/service-name": name}
    endpoints |= {
        "addressType": "IPv4",
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        "endpoints": [{"addresses": [node.layout.address], "conditions": {"ready": True}}],
    }
    for manifest in (service, endpoints):
        node.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))


def _register(node: Host, process: str, group: str, namespace: str, service: str, port: int) -> None:
    """Have the API server forward a group of its API to a Service, once the Service can be reached."""
    healthy = f"https://{node.layout.address}:{port}/livez"
    node.processes.wait(process, lambda: answers(healthy, node.authority.cacertfile))
    address = node.kubectl("-n", namespace, "get", "service", service, "-o", "jsonpath={.spec.clusterIP}")
    rule = f"-d {address}/32 "
    until(lambda: rule in run("iptables", "--wait", "-t", "nat", "-S"), what=f"a route to {service}")
    registration = _object("apiregistration.k8s.io/v1", "APIService", f"v1beta1.{group}")
    registration["spec"] = {
        "group": group,
        "version": "v1beta1",
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "caBundle": base64.b64encode(node.authority.cacertfile.read_bytes()).decode(),
        "service": {"name": service, "namespace": namespace},
    }
    node.kubectl("apply", "-f", "-", stdin=json.dumps(registration))
    name = f"apiservice/{registration['metadata']['name']}"
    node.processes.wait(process, lambda: _all_are("Available", node, [name]))


def _all_are(condition: str, node: Host, names: list[str]) -> bool:
    # A JSONPath query of kubectl would fail right after creation, when there are no conditions.
    found = json.loads(node.kubectl("get", *names, "-o", "json"))
    states = [(item.get("status") or {}).get("conditions") or [] for item in found.get("items", [found])]
    return all(any((found["type"], found["status"]) == (condition, "True") for found in state) for state in states)


def _object(version: str, kind: str, name: str, namespace: str = "") -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": version, "kind": kind, "metadata": metadata}
