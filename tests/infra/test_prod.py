"""`pulumi up` of the stack `prod` on a real cluster with a real KEDA: autoscaling, monitoring, network policies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.broker import Broker
from testbed.kubernetes.building import binaries
from testbed.kubernetes.cluster import Cluster
from testbed.waiting import until
from tests.infra.clustered import OPERATED, SCRIPTED, on_cluster, prometheus_operator

# The first may have to build KEDA.
pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.full, pytest.mark.timeout(1800)]


def test_a_pool_is_scaled_by_keda_and_watched_and_a_second_up_changes_nothing(
    cluster: Cluster, brokers: Callable[[str], Broker], tmp_path: Path
) -> None:
    binaries("keda")
    cluster.start_keda()
    prometheus_operator(cluster)
    stack = on_cluster(cluster, brokers("4.3"), tmp_path / "project", "prod")
    stack.values["kubernetes"] = {
        **stack.values["kubernetes"],
        "monitoring": "prometheus-operator",
        "network_policy": {"broker": [f"{cluster.gateway}/32"], "monitoring_namespace": "monitoring"},
    }
    scaled = {
        "autoscaling": "keda",
        "max_replicas": 2,
        "messages_per_worker": 1,
        "scaler": {"pollingInterval": 1},
    }
    stack.values["workers"] = {"core": {**SCRIPTED, **scaled}}
    stack.configure()
    try:
        stack.must_up()
        stack.settled("core")

        with stack.client("core") as client:
            # One worker to begin with, and another while there is more to do than one can
            assert client.ask("42", timeout=120).status == "ok"
            assert len(stack.workers("core", "42")) == 1
            ids: list[str] = []

            def busy() -> bool:
                """More waits than one can do, for as long as there is only one."""
                client.poll()
                waiting = sum(request_id not in client.answers for request_id in ids)
                ids.extend(client.send("42", b"sleep:3") for _ in range(8 - waiting))
                return len(stack.workers("core", "42")) == 2

            until(busy, within=180, every=0.5, what="the second worker")
            assert {answer.status for answer in client.wait(*ids, timeout=120)} == {"ok"}

        (scaler,) = stack.get("core", "scaledobjects")["items"]
        assert scaler["spec"]["triggers"][0]["authenticationRef"] == {"name": "core-broker"}
        found = {kind: stack.get("core", kind)["items"] for kind in (*OPERATED.values(), "networkpolicies", "pdb")}
        assert all(found.values()), found
        stack.must_up("--refresh", "--expect-no-changes")
    finally:
        stack.remove()
