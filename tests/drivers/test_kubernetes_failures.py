"""Failures of groups on Kubernetes: each is reported for its key, with what to do, and harms no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from osrdyne.drivers.base import GroupState
from osrdyne.errors import DriverError
from testbed.kubernetes.cluster import WORKER_IMAGE
from testbed.waiting import until_async
from tests.drivers.subjects.base import listed
from tests.drivers.subjects.kubernetes import NAMESPACE, KubernetesSubject

# The first test may have to build the cluster.
pytestmark = [pytest.mark.xdist_group("kubernetes"), pytest.mark.full]

CONTAINER = {"name": "worker", "image": WORKER_IMAGE, "imagePullPolicy": "IfNotPresent"}


@pytest.fixture
def quota(kube: KubernetesSubject) -> Iterator[Callable[..., None]]:
    """Sets a quota on the namespace for one test."""

    def of(**hard: str) -> None:
        limits = {name.replace("_", "."): text for name, text in hard.items()}
        metadata = {"name": "few", "namespace": NAMESPACE}
        kube.cluster.apply(
            {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": limits}}
        )

    yield of
    kube.kubectl("delete", "resourcequota", "few", "--ignore-not-found")


@pytest.mark.parametrize(
    ("worker", "says"),
    [
        ({"image": "missing/image:none", "imagePullPolicy": "Never"}, "image missing/image:none cannot be had"),
        ({"command": ["/no/such/program"]}, "/no/such/program"),
        ({"command": ["python3", "-c", "import sys; sys.exit(7)"]}, "worker ended with status 7"),
        (
            {"command": ["python3", "-c", "x = bytearray(10**9)"], "resources": {"limits": {"memory": "64Mi"}}},
            "more memory than its limit",
        ),
        ({"resources": {"requests": {"cpu": "10000"}}}, "no node takes the pod"),
        ({"envFrom": [{"secretRef": {"name": "not-there"}}]}, 'secret "not-there" not found'),
    ],
    ids=["image", "program", "status", "memory", "node", "secret"],
)
async def test_a_pod_that_cannot_run_is_reported_and_harms_no_other(
    kube: KubernetesSubject, worker: dict[str, Any], says: str
) -> None:
    good, bad = kube.driver(), kube.driver_of(kube.declared(**worker), pool=f"{kube.pool}-two")
    await good.start("a")
    await bad.start("a")
    await kube.error(bad, "a", says)
    await kube.until_running(good, "a")
    # And such a group can be stopped
    await bad.stop("a")
    await kube.until_gone(bad, "a")


async def test_each_exit_is_reported_once(kube: KubernetesSubject) -> None:
    driver = kube.driver()
    await driver.start("crash")
    errors = [await kube.error(driver, "crash") for _ in range(2)]
    assert all("worker ended with status 3" in line for line in errors), errors
    [pod] = kube.pods("crash")
    assert pod["status"]["containerStatuses"][0]["restartCount"] >= 1
    # And a failure that another daemon has reported is reported by the next only while it lasts
    driver = kube.driver()
    await driver.list()
    await kube.error(driver, "crash", "worker ended with status 3")


async def test_a_quota_on_pods_is_reported_and_heals_with_it(
    kube: KubernetesSubject, quota: Callable[..., None]
) -> None:
    quota(pods="0")
    driver = kube.driver()
    await driver.start("a")
    error = await kube.error(driver, "a", "exceeded quota: few")
    assert "raise the ResourceQuota" in error
    assert (await listed(driver))["a"].state is GroupState.STARTING
    kube.kubectl("delete", "resourcequota", "few")
    await kube.until_running(driver, "a")


async def test_a_quota_on_deployments_refuses_the_start(kube: KubernetesSubject, quota: Callable[..., None]) -> None:
    quota(**{"count/deployments_apps": "0"})

    async def refused() -> bool:
        with pytest.raises(
            DriverError, match=r"cannot start key 'a': .*exceeded quota: few.*; raise the ResourceQuota"
        ):
            await driver.start("a")
        return True

    driver = kube.driver()
    await until_async(refused)
    assert await driver.list() == []


async def test_a_deployment_that_others_made_is_not_taken_over(kube: KubernetesSubject) -> None:
    name = kube.group("a")
    theirs = {"template": {"metadata": {"labels": {"osrdyne/key-hash": "x"}}, "spec": {"containers": [CONTAINER]}}}
    labels = {"matchLabels": {"osrdyne/key-hash": "x"}}
    metadata = {"name": name, "namespace": NAMESPACE}
    spec = {"replicas": 0, "selector": labels, **theirs}
    kube.cluster.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})
    driver = kube.driver()
    with pytest.raises(DriverError, match=r"cannot start key 'a': .*conflict.*another owner"):
        await driver.start("a")
    assert await driver.list() == []
    assert kube.get("deployment", name)["spec"]["replicas"] == 0
    kube.kubectl("delete", "deployment", name)
    await driver.start("a")
    await kube.until_running(driver, "a")


async def test_a_template_that_the_cluster_refuses_says_so(kube: KubernetesSubject) -> None:
    template = kube.declared(imagePullPolicy="Sometimes")
    with pytest.raises(DriverError, match=r"Sometimes.*; correct the manifest in driver.template_directory"):
        await kube.driver_of(template).start("a")
    template = kube.declared(imagePullPolicie="Never")
    with pytest.raises(DriverError, match=r"imagePullPolicie.*; correct the manifest in driver.template_directory"):
        await kube.driver_of(template).start("a")


async def test_a_deployment_that_others_delete_is_reported(kube: KubernetesSubject) -> None:
    driver = kube.driver()
    await kube.ready(driver, "a")
    kube.kubectl("delete", "deployment", kube.group("a"), "--wait=false")
    await kube.error(driver, "a", "the Deployment was deleted from outside")
    assert await driver.list() == []
