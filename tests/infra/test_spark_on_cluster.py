"""The pipeline by Spark on Kubernetes, as docs/howto/pipeline-cluster.md has it: its executors are pods of the cluster,
and it makes the tables that a run on this machine makes.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import steps
from osrdyne_pipeline.lake import Lake
from testbed.broker import Broker
from testbed.kubernetes.cluster import Cluster, ClusterFailed
from testbed.pool import Pool
from testbed.waiting import until
from tests.infra.built_images import SPARK, archives
from tests.pipeline.small_history import record
from tests.pipeline.tables.histories import random_history, read_small

# The first of them may have to wait for the cluster and the images.
pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.full, pytest.mark.timeout(1800)]

#: Name of the run's objects on the cluster, and of what they use.
NAME, CLAIM, SECRET = "pipeline-spark", "lake", "core-pipeline"
#: Of the pods.
USER = 65532
PAGE = Path(steps.ROOT, "docs/howto/pipeline-cluster.md").read_text()
#: What the manifest has -> what a test's machine has room for.
SMALL = {
    "osrdyne-spark:0.1.0": SPARK.name,
    "spark.executor.memory                       1g": "spark.executor.memory 512m",
    "spark.executor.memoryOverhead               512m": "spark.executor.memoryOverhead 384m",
    "spark.kubernetes.executor.request.cores     1": "spark.kubernetes.executor.request.cores 100m",
    "OSRDYNE_PIPELINE_MEMORY, value: 1g": "OSRDYNE_PIPELINE_MEMORY, value: 512m",
    "requests: {cpu: 500m, memory: 3Gi}": "requests: {cpu: 100m, memory: 512Mi}",
}


@dataclass
class Place:
    """A namespace with a lake that pods share, and the address of a pool's broker."""

    cluster: Cluster
    namespace: str
    #: The lake, as this machine sees it.
    lake: Path
    pool: Pool

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        return self.cluster.kubectl("-n", self.namespace, *words, stdin=stdin)

    def may(self, *words: str) -> bool:
        """Whether the driver may do something here."""
        who = f"system:serviceaccount:{self.namespace}:{NAME}"
        try:
            return self.kubectl("auth", "can-i", *words, f"--as={who}").strip() == "yes"
        except ClusterFailed:  # which is how it says no
            return False


@pytest.fixture
def place(cluster: Cluster, brokers: Callable[[str], Broker]) -> Iterator[Place]:
    for archive in archives(SPARK):
        cluster.load_archive(archive)
    broker = brokers("4.3")
    cluster.forward(broker.amqp_port)
    name = f"spark-{secrets.token_hex(4)}"
    broker.management.add_vhost(name, broker.admin)
    pool = Pool.on(broker, name)
    folder = cluster.directory / name
    superuser = [] if os.geteuid() == 0 else ["sudo", "-n"]
    owner = ["--owner", str(USER), "--group", str(USER)]
    subprocess.run([*superuser, "install", "--directory", "--mode", "755", *owner, str(folder)], check=True)
    spec: dict[str, Any] = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    volume = {**spec, "capacity": {"storage": "1Gi"}, "hostPath": {"path": str(folder)}}
    claim = {**spec, "resources": {"requests": {"storage": "1Gi"}}, "volumeName": name}
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    uri = pool.uri(pool.users.monitor).replace("127.0.0.1", cluster.gateway)
    inside = {"namespace": name}
    secret = {"metadata": {"name": SECRET, **inside}, "stringData": {"pipeline.uri": uri}}
    cluster.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}},
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": volume},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": CLAIM, **inside}, "spec": claim},
        {"apiVersion": "v1", "kind": "Secret", **secret},
    )
    try:
        yield Place(cluster, name, folder, pool)
    finally:
        cluster.kubectl("delete", "namespace", name, "--wait=false")
        cluster.kubectl("-n", name, "delete", "pods", "--all", "--force", "--grace-period=0", "--wait=false")
        cluster.kubectl("delete", "persistentvolume", name, "--wait=false")
        pool.remove_users()
        broker.management.delete("vhosts", name)


def manifest() -> str:
    """The manifest that the page applies, with little memory and the tests' image."""
    found = re.search(r"kubectl -n \S+ apply --filename (\S+)", PAGE)
    assert found
    text = Path(steps.ROOT, found[1]).read_text()
    for given, small in SMALL.items():
        assert given in text, given
        text = text.replace(given, small)
    return text


def watch(place: Place) -> tuple[str, dict[str, dict[str, Any]]]:
    """Wait for the end of the run: how it ended, and the executors that there were meanwhile, by name."""
    seen: dict[str, dict[str, Any]] = {}

    def ended() -> str | None:
        for pod in json.loads(place.kubectl("get", "pods", "-l", "spark-role=executor", "-o", "json"))["items"]:
            if pod["status"]["phase"] == "Running":
                seen[pod["metadata"]["name"]] = pod
        status = json.loads(place.kubectl("get", "job", NAME, "-o", "json"))["status"]
        kinds = [condition["type"] for condition in status.get("conditions", ()) if condition["status"] == "True"]
        return next((kind for kind in kinds if kind in ("Complete", "Failed")), None)

    return str(until(ended, every=0.5, within=1200, what=f"the end of {NAME}")), seen


def test_a_run_by_spark_has_pods_for_executors_and_makes_the_tables_of_a_run_here(place: Place, tmp_path: Path) -> None:
    history = random_history(7, keys=12, events_of_a_key=60)
    rows = [{name: value for name, value in event._asdict().items() if value is not None} for event in history]
    record(place.pool, rows)

    place.kubectl("apply", "--filename", "-", stdin=manifest())
    how, executors = watch(place)

    said = place.kubectl("logs", f"job/{NAME}", "--tail=-1")
    assert how == "Complete", said
    assert f"ingest: {len(rows):,} new events, 0 rejects" in said
    assert "report: /lake/core/report.html" in said
    # What Spark did, it did in pods that it made: they have no token, and go with the driver's pod
    driver = place.kubectl("get", "pods", "-l", f"job-name={NAME}", "-o", "jsonpath={.items[*].metadata.name}")
    assert len(executors) >= 2, said
    for pod in executors.values():
        assert [owner["name"] for owner in pod["metadata"]["ownerReferences"]] == [driver]
        [container] = pod["spec"]["containers"]
        assert container["image"] == SPARK.name
        places = [mount["mountPath"] for mount in container["volumeMounts"]]
        assert not any("serviceaccount" in place or "credentials" in place for place in places)
        assert SECRET not in json.dumps(pod["spec"])
    # None of them stays
    assert place.kubectl("get", "pods", "-l", "spark-role=executor", "-o", "name") == ""

    # The driver may use pods of its namespace, and nothing else
    assert place.may("create", "pods")
    for asked in (("get", "secrets"), ("create", "jobs"), ("create", "rolebindings")):
        assert not place.may(*asked), asked
    assert not place.may("create", "pods", "--subresource=exec")
    assert not place.may("list", "pods", "--all-namespaces")

    # The same events give the same tables on this machine
    here = tmp_path / "lake"
    address = tmp_path / "monitor.uri"
    address.write_text(place.pool.uri(place.pool.users.monitor))
    words = ["run", "--pool", "core", "--lake", str(here), "--uri-file", str(address)]
    subprocess.run([sys.executable, "-m", "osrdyne.cli", "pipeline", *words], check=True, timeout=300)
    theirs, ours = read_small(Lake(place.lake, "core")), read_small(Lake(here, "core"))
    assert theirs.keys() == ours.keys()
    for name, table in ours.items():
        assert table, name
        if name == "forecast":
            assert [row[:3] for row in theirs[name]] == [row[:3] for row in table]
            assert [value for row in theirs[name] for value in row[3:]] == pytest.approx(
                [value for row in table for value in row[3:]]
            )
        else:
            assert theirs[name] == table, name
