"""What is special of groups that are Deployments: templates, keys, replicas, and who else has a hand in them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from osrdyne.drivers.base import GroupState
from osrdyne.drivers.kubernetes.api import Api
from osrdyne.drivers.kubernetes.manifests import POOL_LABEL
from osrdyne_protocol import names
from testbed.waiting import PATIENCE_SECONDS, until_async
from tests.drivers.subjects.base import listed
from tests.drivers.subjects.kubernetes import NAMESPACE, KubernetesSubject

# The first test may have to build the cluster.
pytestmark = [pytest.mark.xdist_group("kubernetes"), pytest.mark.full]

#: Characters that something between us and the worker could take for its own.
ODD_KEYS = ["\U0001f686", "\x7f\x85\u2028\ufeff\uffff", "$(HOME) $$x", " a ", "'\"\\#:{}", "yes", "1e3", "\x01\x1f\t"]


async def test_all_that_the_template_says_reaches_the_pod(kube: KubernetesSubject) -> None:
    # Given a template with much of what a Deployment can say
    settings = {"name": "settings", "namespace": NAMESPACE}
    kube.cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": settings, "data": {"MODEL": "small"}})
    template = kube.declared(
        env=[{"name": "GREETING", "value": "I serve $(WORKER_KEY) as $(WORKER_ID)"}],
        envFrom=[{"configMapRef": {"name": "settings"}}],
        readinessProbe={"exec": {"command": ["true"]}, "periodSeconds": 7},
        resources={"limits": {"memory": "128Mi"}, "requests": {"cpu": "1m"}},
        securityContext={"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True},
        volumeMounts=[{"name": "scratch", "mountPath": "/scratch"}],
    )
    template["metadata"] = {"labels": {"team": "rail"}, "annotations": {"note": "kept"}}
    template["spec"].update(replicas=2, revisionHistoryLimit=1, minReadySeconds=1, strategy={"type": "Recreate"})
    pod = template["spec"]["template"]
    pod["metadata"] = {"labels": {"tier": "back"}, "annotations": {"scrape": "yes"}}
    pod["spec"].update(
        nodeSelector={"kubernetes.io/os": "linux"},
        securityContext={"runAsUser": 1234, "runAsNonRoot": True},
        volumes=[{"name": "scratch", "emptyDir": {"sizeLimit": "1Mi"}}],
        serviceAccountName="default",
    )
    # When a group is started from it
    driver = kube.driver_of(template)
    await driver.start("a")
    await kube.until_running(driver, "a")

    async def both() -> bool:
        return (await listed(driver))["a"].workers == 2

    await until_async(both)
    # Then its Deployment and its pods are as declared
    made = kube.get("deployment", kube.group("a"))
    assert made["metadata"]["labels"]["team"] == "rail"
    assert made["metadata"]["annotations"]["note"] == "kept"
    assert contains(made["spec"], {**template["spec"], "template": {}})
    pods = kube.pods("a")
    assert len(pods) == 2
    for each_pod in pods:
        assert each_pod["metadata"]["labels"]["tier"] == "back"
        assert each_pod["metadata"]["annotations"]["scrape"] == "yes"
        assert each_pod["metadata"]["annotations"]["osrdyne/key"] == "a"
        declared = {**pod["spec"], "containers": [], "volumes": []}
        assert contains(each_pod["spec"], declared)
        assert contains(each_pod["spec"]["containers"][0], {**pod["spec"]["containers"][0], "env": []})
        assert pod["spec"]["volumes"][0] in each_pod["spec"]["volumes"]
    # And each worker has its pod's name, and may refer to its variables
    environments = await kube.environments("a")
    assert {environment["WORKER_ID"] for environment in environments} == {pod["metadata"]["name"] for pod in pods}
    for environment in environments:
        assert environment["GREETING"] == f"I serve a as {environment['WORKER_ID']}"
        assert environment["MODEL"] == "small"


def contains(found: Any, declared: Any) -> bool:
    """Says whether everything declared was found; the cluster adds defaults. An empty list or table says nothing."""
    if isinstance(declared, dict):
        return all(name in found and contains(found[name], value) for name, value in declared.items())
    if isinstance(declared, list):
        return all(any(contains(deployment, wanted) for deployment in found) for wanted in declared)
    return bool(found == declared)


async def test_a_key_of_any_characters_reaches_its_worker(kube: KubernetesSubject) -> None:
    driver = kube.driver()
    await asyncio.gather(*(driver.start(key) for key in ODD_KEYS))
    await kube.until_running(driver, *ODD_KEYS)
    assert {key: [environment["WORKER_KEY"] for environment in await kube.environments(key)] for key in ODD_KEYS} == {
        key: [key] for key in ODD_KEYS
    }


async def test_looking_at_groups_asks_the_cluster_nothing(
    kube: KubernetesSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    send = Api._send

    async def noting(self: Api, method: str, *arguments: Any, **named: Any) -> Any:
        asked.append(method)
        return await send(self, method, *arguments, **named)

    monkeypatch.setattr(Api, "_send", noting)
    driver = kube.driver()
    for key in ("a", "b", "c"):
        await driver.start(key)
    await kube.until_running(driver, "a", "b", "c")
    for _ in range(100):
        await driver.list()
    # One request a start. Listings and watches: two each, and one more whenever the API server ends a watch.
    assert [method for method in asked if method != "GET"] == ["PATCH"] * 3
    assert len(asked) < 50


async def test_the_replica_count_is_written_only_by_its_owner(kube: KubernetesSubject) -> None:
    template = kube.declared()
    template["spec"]["replicas"] = 5
    scaler = {"spec": {"minReplicas": 3, "maxReplicas": 6, "metrics": [CPU]}}

    async def three() -> bool:
        return (await listed(driver))["a"].workers == 3

    # Given a group whose autoscaler has made it three
    driver = kube.driver_of(template, autoscaling="hpa", scaler=scaler)
    await driver.start("a")
    await until_async(three)
    before = await kube.workers("a")
    # When this daemon and the next start it again
    await driver.start("a")
    driver = kube.driver_of(template, autoscaling="hpa", scaler=scaler)
    await driver.start("a")
    # Then it has those three, and we own no count
    assert await three()
    assert await kube.workers("a") == before
    made = kube.get("deployment", kube.group("a"), "--show-managed-fields")
    assert made["spec"]["replicas"] == 3
    for field in made["metadata"]["managedFields"]:
        if field["manager"] == "osrdyne":
            assert "f:replicas" not in field["fieldsV1"]["f:spec"]


CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}


async def test_a_change_of_the_number_of_workers_is_reported(kube: KubernetesSubject) -> None:
    driver = kube.driver()
    await kube.ready(driver, "a")
    kube.kubectl("scale", "deployment", kube.group("a"), "--replicas=2")
    changes = aiter(driver.changes())
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await listed(driver))["a"].workers != 2:
            assert (await anext(changes)).key == "a"


async def test_a_worker_that_ignores_sigterm_is_killed_when_its_grace_is_over(kube: KubernetesSubject) -> None:
    template = kube.declared()
    template["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 2
    driver = kube.driver_of(template)
    await kube.ready(driver, "deaf")
    await driver.stop("deaf")
    assert (await listed(driver))["deaf"].state is GroupState.STOPPING
    await kube.until_gone(driver, "deaf")


async def test_a_group_that_was_asked_for_and_asked_to_stop_again_stays_away(kube: KubernetesSubject) -> None:
    driver = kube.driver()
    await kube.ready(driver, "busy")
    await driver.stop("busy")
    await driver.start("busy")
    await driver.stop("busy")
    await kube.until_gone(driver, "busy")
    # By the time that another key is up, it would be back.
    await kube.ready(driver, "a")
    assert (await listed(driver)).keys() == {"a"}


async def test_two_daemons_at_once_have_one_group_between_them(kube: KubernetesSubject) -> None:
    first, second = kube.driver(), kube.driver()
    await asyncio.gather(first.start("a"), second.start("a"))
    await kube.until_running(first, "a")
    await kube.until_running(second, "a")
    assert len(kube.pods("a")) == 1
    # And what one does, the other sees
    await second.stop("a")
    await kube.until_gone(first, "a")
    assert await second.list() == []


async def test_of_two_deployments_of_a_key_the_one_that_an_earlier_version_named_goes(
    kube: KubernetesSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given what two versions of the daemon have made, each without a sight of the other's, from different templates
    with monkeypatch.context() as earlier:
        earlier.setattr(names, "engine_name", lambda pool, _instance, _key: f"{pool}-earlier")
        former = kube.driver(template="b")
        await former.start("a")
        await former.close()
    driver = kube.driver()
    await driver._ready()
    await driver._create("a")
    # When groups are listed, then the group is that of our name, and the other is deleted
    assert [group.template for group in await driver.list()] == [driver.template]

    async def alone() -> bool:
        assert [group.template for group in await driver.list()] == [driver.template]
        found = kube.get("deployments", "-l", f"{POOL_LABEL}={kube.pool}")["items"]
        return [deployment["metadata"]["name"] for deployment in found] == [kube.group("a")]

    await until_async(alone)
    await kube.until_running(driver, "a")


async def test_objects_that_only_look_like_ours_are_not_listed(kube: KubernetesSubject) -> None:
    driver = kube.driver()
    await driver.start("a")
    kube.kubectl("annotate", "--overwrite", "deployment", kube.group("a"), "osrdyne/key=b")

    async def hidden() -> bool:
        return (await kube.driver().list()) == []

    await until_async(hidden)
    kube.kubectl("annotate", "--overwrite", "deployment", kube.group("a"), "osrdyne/key=a")
    assert (await listed(kube.driver())).keys() == {"a"}
