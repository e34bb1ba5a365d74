"""A pipeline that runs by itself, by `pulumi up` on a real cluster: its runs read real events and write the page."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.broker import Broker
from testbed.kubernetes.cluster import Cluster
from testbed.waiting import until
from tests.infra.built_images import PIPELINE, archives
from tests.infra.clustered import RESOURCES, OnCluster, on_cluster

# The first of them may have to wait for the cluster and the images.
pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.full, pytest.mark.timeout(1800)]

#: Name of the volume, of its storage class, and of its folder.
DISK = "disk-of-a-pipeline"
NAME = "core-pipeline"
#: Of the pods.
USER = 65532


@pytest.fixture
def stack(cluster: Cluster, brokers: Callable[[str], Broker], tmp_path: Path) -> Iterator[OnCluster]:
    """A stack whose pool has a pipeline, to which nothing has been done yet."""
    for archive in archives(PIPELINE):
        cluster.load_archive(archive)
    made = on_cluster(cluster, brokers("4.3"), tmp_path / "project", "staging")
    made.values["pipeline"] = {
        "image": PIPELINE.name,
        "resources": {**RESOURCES, "limits": {"memory": "1Gi"}},
        "memory": "512m",
        "storage": "1Gi",
        "storage_class": DISK,
    }
    made.configure()
    superuser = [] if os.geteuid() == 0 else ["sudo", "-n"]
    folder = str(cluster.directory / DISK)
    owner = ["--owner", str(USER), "--group", str(USER)]
    subprocess.run([*superuser, "install", "--directory", "--mode", "700", *owner, folder], check=True)
    cluster.apply(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": DISK},
            "provisioner": "kubernetes.io/no-provisioner",
        }
    )
    spec: dict[str, Any] = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": DISK,
        "hostPath": {"path": folder},
        "claimRef": {"namespace": made.namespace("core"), "name": NAME},
    }
    cluster.apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": DISK}, "spec": spec})
    yield made
    made.remove()
    cluster.kubectl("delete", "persistentvolume", DISK, "--wait=false")
    cluster.kubectl("delete", "storageclass", DISK)


def run(stack: OnCluster, job: str) -> str:
    """Start a run, as the CronJob does at its time, and wait for its end; its log."""
    here = ("-n", stack.namespace("core"))
    stack.cluster.kubectl(*here, "create", "job", job, f"--from=cronjob/{NAME}")

    def ended() -> str | None:
        status = stack.get("core", "job", job)["status"]
        kinds = [condition["type"] for condition in status.get("conditions", ()) if condition["status"] == "True"]
        return next((kind for kind in kinds if kind in ("Complete", "Failed")), None)

    how = until(ended, every=0.5, within=240, what=f"the end of {job}")
    said = stack.cluster.kubectl(*here, "logs", f"job/{job}")
    assert how == "Complete", said
    return said


def test_a_run_of_the_cron_job_reads_the_events_and_the_page_is_there(stack: OnCluster) -> None:
    stack.must_up()
    stack.settled("core")
    with stack.client("core") as client:
        for number in range(3):
            sent = client.send("JFK", b"hello %d" % number)
            assert client.wait(sent)

    first = run(stack, "first")

    found = re.search(r"^ingest: (\d+) new events, \d+ rejects$", first, re.MULTILINE)
    assert found, first
    assert int(found[1]) > 0
    assert "report: /var/lib/osrdyne/lake/core/report.html" in first
    # And the next one reads what came since, and nothing twice
    second = run(stack, "second")
    requests = re.search(r"^tables: (\d+) requests of (\d+) events$", second, re.MULTILINE)
    assert requests, second
    assert int(requests[1]) > 0
    again = re.search(r"^ingest: (\d+) new events", second, re.MULTILINE)
    assert again
    assert int(requests[2]) == int(found[1]) + int(again[1])
    # The page is on the volume, and of this pool
    page = (stack.cluster.directory / DISK / "core/report.html").read_text()
    assert "JFK" in page

    # No password is where it need not be
    word = stack.project.outputs()["addresses"]["core"]["pipeline"].split("@")[0].rpartition(":")[2]
    kinds = "pods,jobs,cronjobs,configmaps,events"
    said = first + second + stack.cluster.kubectl("-n", stack.namespace("core"), "get", kinds, "-o", "yaml")
    assert NAME in said
    assert word not in said
    assert stack.must_up("--expect-no-changes").code == 0
