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
from testbed.s3.server import BUCKET, S3Server
from testbed.waiting import until
from tests.infra.built_images import PIPELINE, archives
from tests.infra.clustered import FLIGHTS, RESOURCES, OnCluster, on_cluster

# The first of them may have to wait for the cluster and the images.
pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.full, pytest.mark.timeout(1800)]

#: Name of the volume, of its storage class, and of its folder.
DISK = "disk-of-a-pipeline"
NAME = "core-pipeline"
#: Of the pods.
USER = 65532
QUESTION = b'{"question": "likely-delay", "at": "2013-12-21T17:30", "origin": "JFK"}'


@pytest.fixture
def bucket() -> Iterator[S3Server]:
    with S3Server() as own:
        yield own


@pytest.fixture
def stack(cluster: Cluster, brokers: Callable[[str], Broker], tmp_path: Path) -> Iterator[OnCluster]:
    """A stack whose pool has a pipeline, to which nothing has been done yet."""
    for archive in archives(PIPELINE):
        cluster.load_archive(archive)
    made = on_cluster(cluster, brokers("4.3"), tmp_path / "project", "staging")
    # Other peers may leave out the time of an event, and such an event is rejected
    made.values["workers"] = {"core": FLIGHTS}
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


def counted(said: str) -> tuple[int, int, int]:
    """New events of a run that took every event, and requests and events of the tables."""
    taken = re.search(r"^ingest: (\d+) new events, 0 rejects$", said, re.MULTILINE)
    made = re.search(r"^tables: (\d+) requests of (\d+) events$", said, re.MULTILINE)
    assert taken, said
    assert made, said
    return int(taken[1]), int(made[1]), int(made[2])


def ask(stack: OnCluster, times: int) -> None:
    with stack.client("core") as client:
        for _ in range(times):
            assert client.ask("JFK", QUESTION, timeout=120).status == "ok"


def test_runs_of_the_cron_job_take_every_event_and_publish_the_page(stack: OnCluster, bucket: S3Server) -> None:
    stack.must_up()
    stack.settled("core")
    ask(stack, 3)

    first = run(stack, "first")

    new, requests, events = counted(first)
    assert (new, requests) == (events, 3)
    assert "report: /var/lib/osrdyne/lake/core/report.html" in first
    # The next one reads what came since, and nothing twice
    ask(stack, 2)
    second = run(stack, "second")
    more, requests, after = counted(second)
    assert (events + more, requests) == (after, 5)
    # The page is on the volume, and of this pool
    page = (stack.cluster.directory / DISK / "core/report.html").read_text()
    assert "JFK" in page

    # In a bucket in place of the volume, the page is an object
    port = int(bucket.endpoint.rpartition(":")[2])
    stack.cluster.forward(port)
    place = {"lake": f"s3://{BUCKET}/analytics", "s3_endpoint": f"http://{stack.cluster.gateway}:{port}"}
    without = ("storage", "storage_class")
    given = {name: value for name, value in stack.values["pipeline"].items() if name not in without}
    key = bucket.secret_key_file.read_text().strip()
    stack.more_secrets = {
        "pipeline_s3_access_key": bucket.access_key_file.read_text().strip(),
        "pipeline_s3_secret_key": key,
    }
    # A claim stays as long as pods of finished runs use it
    stack.cluster.kubectl("-n", stack.namespace("core"), "delete", "jobs", "first", "second")
    stack.change(pipeline={**given, **place})
    third = run(stack, "third")
    new, requests, everything = counted(third)
    assert (new, requests) == (everything, 5)
    assert everything >= after
    assert f"report: {place['lake']}/core/report.html" in third
    assert "JFK" in (bucket.bucket / "analytics/core/report.html").read_text()

    # No password is where it need not be
    word = stack.project.outputs()["addresses"]["core"]["pipeline"].split("@")[0].rpartition(":")[2]
    kinds = "pods,jobs,cronjobs,configmaps,events"
    said = first + second + third + stack.cluster.kubectl("-n", stack.namespace("core"), "get", kinds, "-o", "yaml")
    assert NAME in said
    assert word not in said
    assert key not in said
    assert stack.must_up("--expect-no-changes").code == 0
