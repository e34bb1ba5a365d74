"""What is asked of a cluster before a preview, and what is said where it cannot be used."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest

from osrdyne_infra.broker.settings import BrokerDeployment
from osrdyne_infra.cluster import live
from osrdyne_infra.cluster.settings import Cluster, PoolCluster, WorkerSettings
from osrdyne_infra.errors import ClusterUnusable

AUTOSCALED = WorkerSettings.model_validate({"image": "osrdyne.invalid/worker:1", "autoscaling": "keda"})
GROUPS = {"kind": "APIGroupList", "groups": [{"name": "apps", "versions": []}]}
DISK = {"spec": {"resources": {"requests": {"storage": "10Gi"}}, "storageClassName": "slow"}}


@contextmanager
def api(status: int, body: dict[str, Any]) -> Iterator[Cluster]:
    """An API server that gives one answer to all."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield at(f"http://127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()
            thread.join()


def at(address: str) -> Cluster:
    text = json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "x", "cluster": {"server": address}}],
            "users": [{"name": "x", "user": {"token": "hidden-token"}}],
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
            "current-context": "x",
        }
    )
    return by(text)


def by(kubeconfig: str) -> Cluster:
    return Cluster(namespace="rail").model_copy(update={"kubeconfig": kubeconfig})


def refused(cluster: Cluster, *groups: tuple[str, str]) -> str:
    with pytest.raises(ClusterUnusable) as caught:
        live.check(cluster, groups)
    return str(caught.value)


def test_a_cluster_that_does_not_answer_is_named_with_the_setting_that_has_its_address() -> None:
    assert refused(at("http://127.0.0.1:9")) == (
        "the cluster at http://127.0.0.1:9 does not answer: [Errno 111] Connection refused; osrdyne:kubeconfig has its "
        "address"
    )


@pytest.mark.parametrize("status", [401, 403])
def test_credentials_that_are_refused_are_reported(status: int) -> None:
    with api(status, {}) as cluster:
        assert "refuses the credentials of osrdyne:kubeconfig" in refused(cluster)


def test_an_operator_that_is_missing_is_named_with_the_setting_that_needs_it() -> None:
    settings = PoolCluster.model_validate(
        {"namespace": "rail", "daemon": {"image": "osrdyne.invalid/daemon:1"}, "monitoring": "prometheus-operator"}
    )
    needed = list(live.needed(settings, {"core": AUTOSCALED}))
    with api(200, GROUPS) as cluster:
        for group, what in zip(needed, ("KEDA", "the Prometheus operator"), strict=True):
            said = refused(cluster, group)
            assert said.startswith(f"{group[1]}: the cluster at http://127.0.0.1:")
            assert f"has no API {group[0]}; install {what}, or change the setting" in said


def test_a_cluster_that_has_what_is_needed_is_not_refused() -> None:
    with api(200, GROUPS) as cluster:
        live.check(cluster, [("apps", "osrdyne:workers.core.autoscaling")])


@pytest.mark.parametrize("text", ["{hidden-token", "hidden-token", "a: hidden-token"])
def test_a_broken_kubeconfig_is_refused_and_nothing_of_it_shown(text: str) -> None:
    said = refused(by(text))
    assert said.startswith("cannot use osrdyne:kubeconfig: ")
    assert "hidden-token" not in said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"storage": "20Gi"}, "osrdyne:broker_deployment.storage is 20Gi, and the disk data-broker-0 in rail has 10Gi"),
        ({"storage_class": "fast"}, "storage_class is fast, and the disk data-broker-0 in rail has slow"),
    ],
)
def test_a_disk_that_a_stateful_set_does_not_change_is_refused(changes: dict[str, str], said: str) -> None:
    with api(200, {**GROUPS, "items": [DISK]}) as cluster, pytest.raises(ClusterUnusable, match=said):
        live.check_broker(cluster, deployment(**changes))


def test_a_disk_of_the_declared_size_and_one_that_is_not_there_yet_are_right() -> None:
    for disks in ([DISK], []):
        with api(200, {**GROUPS, "items": disks}) as cluster:
            live.check_broker(cluster, deployment(storage=f"{10 << 10}Mi"))
            live.check_broker(cluster, deployment(storage="10Gi", storage_class="slow"))


def test_a_broker_of_the_operator_needs_the_operator_and_no_disk_of_a_stateful_set() -> None:
    wanted = deployment(kind="cluster-operator", storage="20Gi")
    with api(200, {**GROUPS, "items": [DISK]}) as cluster, pytest.raises(ClusterUnusable, match="no API rabbitmq"):
        live.check_broker(cluster, wanted)


def deployment(**changes: str) -> BrokerDeployment:
    given = {"kind": "statefulset", "admin": "admin", "image": "osrdyne.invalid/rabbitmq:4.3", "storage": "10Gi"}
    return BrokerDeployment.model_validate({**given, **changes})
