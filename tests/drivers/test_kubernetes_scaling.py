"""Groups whose number of workers is an autoscaler's: a HorizontalPodAutoscaler, or KEDA's real operator."""

from __future__ import annotations

import asyncio
import copy
import secrets
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from osrdyne.drivers.base import Change, GroupState
from osrdyne.drivers.kubernetes.api import SCALERS, Api, Resource
from osrdyne.errors import DriverError
from osrdyne_protocol import names
from testbed.broker import Broker
from testbed.foreign_client import ForeignClient
from testbed.pool import Pool
from testbed.waiting import PATIENCE_SECONDS, until, until_async
from tests.drivers.subjects.base import listed
from tests.drivers.subjects.kubernetes import NAMESPACE, KubernetesSubject, Manifest
from tests.drivers.subjects.kubernetes_pool import PodPool

# The first test may have to build the cluster.
pytestmark = [pytest.mark.xdist_group("kubernetes"), pytest.mark.full]

CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
HPA: Manifest = {
    "metadata": {"labels": {"team": "rail"}},
    "spec": {"minReplicas": 1, "maxReplicas": 3, "metrics": [CPU]},
}

SCALED_OBJECT: Manifest = {
    "spec": {
        "minReplicaCount": 1,
        "maxReplicaCount": 4,
        "pollingInterval": 1,
        "advanced": {
            "horizontalPodAutoscalerConfig": {
                "behavior": {
                    "scaleDown": {"stabilizationWindowSeconds": 0},
                    "scaleUp": {"stabilizationWindowSeconds": 0},
                }
            }
        },
        "triggers": [
            {
                "type": "rabbitmq",
                "metadata": {
                    "protocol": "http",
                    "mode": "QueueLength",
                    "value": "1",
                    "excludeUnacknowledged": "false",
                },
                "authenticationRef": {"name": "broker"},
            }
        ],
    }
}


def hpa(kube: KubernetesSubject, key: str) -> Manifest | None:
    found = kube.get("hpa", "-l", f"osrdyne/pool={kube.pool}")["items"]
    return next((deployment for deployment in found if deployment["metadata"]["name"] == kube.group(key)), None)


async def test_an_autoscaler_comes_after_the_deployment_and_goes_before_it(
    kube: KubernetesSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []
    send = Api._send

    async def noting(self: Api, method: str, resource: Resource, *arguments: Any, **named: Any) -> Any:
        if method != "GET":
            asked.append((method, resource.plural))
        return await send(self, method, resource, *arguments, **named)

    monkeypatch.setattr(Api, "_send", noting)
    driver = kube.driver_of(kube.declared(), autoscaling="hpa", scaler=HPA)
    await kube.ready(driver, "a")
    made = hpa(kube, "a")
    assert made is not None
    assert made["metadata"]["labels"]["team"] == "rail"
    assert made["spec"]["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": kube.group("a")}
    [owner] = made["metadata"]["ownerReferences"]
    assert owner["uid"] == kube.get("deployment", kube.group("a"))["metadata"]["uid"]
    await driver.stop("a")
    await kube.until_gone(driver, "a")
    assert hpa(kube, "a") is None
    assert asked == [
        ("PATCH", "deployments"),
        ("PATCH", "horizontalpodautoscalers"),
        ("DELETE", "horizontalpodautoscalers"),
        ("DELETE", "deployments"),
    ]


async def test_a_group_that_an_earlier_version_named_otherwise_gets_its_autoscaler_back(
    kube: KubernetesSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{kube.pool}-earlier"
    with monkeypatch.context() as earlier:
        earlier.setattr(names, "engine_name", lambda *_: name)
        former = kube.driver_of(kube.declared(), autoscaling="hpa", scaler=HPA)
        await former.start("a")
        await former.close()
    kube.kubectl("delete", "hpa", name)
    driver = kube.driver_of(kube.declared(), autoscaling="hpa", scaler=HPA)

    async def back() -> bool:
        await driver.list()
        return bool(kube.get("hpa", "-l", f"osrdyne/pool={kube.pool}")["items"])

    await until_async(back)
    made = kube.get("hpa", name)
    assert made["spec"]["scaleTargetRef"]["name"] == name
    await driver.stop("a")
    await kube.until_gone(driver, "a")


async def test_an_autoscaler_that_others_delete_is_made_again(kube: KubernetesSubject) -> None:
    driver = kube.driver_of(kube.declared(), autoscaling="hpa", scaler=HPA)
    await kube.ready(driver, "a")
    before = await kube.workers("a")
    kube.kubectl("delete", "hpa", kube.group("a"))
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await anext(aiter(driver.changes())) == Change("a")

    async def back() -> bool:
        await driver.list()
        return hpa(kube, "a") is not None

    await until_async(back)
    assert await kube.workers("a") == before


async def test_another_autoscaler_reaches_running_groups_and_restarts_no_worker(kube: KubernetesSubject) -> None:
    former = kube.driver_of(kube.declared(), autoscaling="hpa", scaler=HPA)
    await kube.ready(former, "a")
    before = await kube.workers("a")
    await former.close()
    larger = copy.deepcopy(HPA)
    larger["spec"]["maxReplicas"] = 7
    driver = kube.driver_of(kube.declared(), autoscaling="hpa", scaler=larger)

    async def larger_now() -> bool:
        await driver.list()
        made = hpa(kube, "a")
        return made is not None and made["spec"]["maxReplicas"] == 7

    await until_async(larger_now)
    assert (await listed(driver))["a"].template == former.template == driver.template
    assert await kube.workers("a") == before


async def test_another_kind_of_autoscaling_rolls_a_group_and_leaves_nothing_of_the_former(
    kube: KubernetesSubject,
) -> None:
    former = kube.driver_of(kube.declared(), autoscaling="hpa", scaler=HPA)
    await kube.ready(former, "a")
    await former.close()
    driver = kube.driver_of(kube.declared())
    assert (await listed(driver))["a"].template != driver.template
    await driver.stop("a")
    await kube.until_gone(driver, "a")
    assert hpa(kube, "a") is None


async def test_an_autoscaler_that_is_refused_is_reported_and_the_group_serves(kube: KubernetesSubject) -> None:
    wrong = copy.deepcopy(HPA)
    wrong["spec"]["maxReplicas"] = -1
    driver = kube.driver_of(kube.declared(), autoscaling="hpa", scaler=wrong)
    with pytest.raises(DriverError, match=r"maxReplicas.*; correct the manifest"):
        await driver.start("a")
    await kube.until_running(driver, "a")
    await kube.error(driver, "a", "maxReplicas")
    await driver.stop("a")
    await kube.until_gone(driver, "a")


class Replicas(threading.Thread):
    """Notes every number of replicas that a Deployment asks for."""

    def __init__(self, kube: KubernetesSubject, key: str) -> None:
        super().__init__(daemon=True)
        self._kube, self._name, self._over = kube, kube.group(key), threading.Event()
        self.seen: list[int] = []

    def run(self) -> None:
        while not self._over.wait(0.3):
            text = self._kube.kubectl(
                "get", "deployment", self._name, "-o", "jsonpath={.spec.replicas}", "--ignore-not-found"
            )
            if text and self.seen[-1:] != [int(text)]:
                self.seen.append(int(text))

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def __enter__(self) -> Replicas:
        self.start()
        return self


@pytest.fixture
def scaled(kube: KubernetesSubject, one_broker: Broker, tmp_path: Path) -> Iterator[PodPool]:
    """A pool whose groups KEDA scales by their queues."""
    kube.cluster.start_keda()
    broker, vhost = one_broker, f"test-{secrets.token_hex(6)}"
    broker.management.add_vhost(vhost, broker.admin)
    pool = Pool.on(broker, vhost, name=kube.pool, instance="one")
    made = PodPool(kube, pool, tmp_path, autoscaling="keda", scaler=SCALED_OBJECT)
    kube.cluster.forward(broker.management_port)
    monitor = f"{pool.users.monitor}:{pool.passwords[pool.users.monitor]}"
    made.keep_secret("broker", "host", f"http://{monitor}@{kube.cluster.gateway}:{broker.management_port}/{vhost}")
    kube.cluster.apply(
        {
            "apiVersion": "keda.sh/v1alpha1",
            "kind": "TriggerAuthentication",
            "metadata": {"name": "broker", "namespace": NAMESPACE},
            "spec": {"secretTargetRef": [{"parameter": "host", "name": "broker", "key": "host"}]},
        }
    )
    yield made
    made.close()
    kube.kubectl("delete", "triggerauthentication,secret", "broker", "--ignore-not-found")
    broker.management.delete("vhosts", vhost)


@pytest.mark.parametrize("key", ["LAX", "a b/é"])
def test_keda_scales_a_group_with_its_queue_and_never_takes_the_last_worker(scaled: PodPool, key: str) -> None:
    kube = scaled.kube
    client = ForeignClient(scaled.pool.client_uri, scaled.pool.names.request_exchange)
    scaled.daemon()
    try:
        client.ask(key)
        with Replicas(kube, key) as replicas:
            # When there is more to do than one worker can
            until(lambda: replicas.seen == [1])
            ids = [client.send(key, b"sleep:1") for _ in range(40)]
            # Then there are more workers, and all is answered once
            until(lambda: 4 in replicas.seen, what="as many workers as the ScaledObject allows")
            assert {answer.status for answer in client.wait(*ids, timeout=PATIENCE_SECONDS)} == {"ok"}
            assert max(replicas.seen) == 4
            # And one when all is done
            until(lambda: replicas.seen[-1] == 1, what="the last worker alone")
            # And requests that are in hand, and none besides, keep their workers
            slow = [client.send(key, b"sleep:12") for _ in range(3)]
            until(lambda: replicas.seen[-1] >= 3, what="a worker for each request")
            until(lambda: len(kube.pods(key)) >= 3, what="a pod for each request")
            client.wait(*slow)
            until(lambda: replicas.seen[-1] == 1, what="the last worker alone")
            quiet = time.monotonic() + 5
            until(lambda: time.monotonic() > quiet)
        assert min(replicas.seen) == 1
        assert all(len(client.answers[request_id]) == 1 for request_id in [*ids, *slow])
    finally:
        client.close()


async def test_a_scaled_object_goes_before_its_deployment_and_leaves_nothing(scaled: PodPool) -> None:
    kube = scaled.kube
    driver = kube.driver_of(kube.declared(), autoscaling="keda", scaler=SCALED_OBJECT)
    for _ in range(2):
        await kube.ready(driver, "a")
        made = kube.get("scaledobject", kube.group("a"))
        trigger = made["spec"]["triggers"][0]
        assert trigger["metadata"]["queueName"] == names.PoolNames(kube.pool).request_queue("a")
        assert trigger["authenticationRef"] == {"name": "broker"}
        await driver.stop("a")
        await kube.until_gone(driver, "a")
        assert kube.get("scaledobject", "-l", f"osrdyne/pool={kube.pool}")["items"] == []


async def test_a_group_is_stopping_until_keda_has_let_go_of_it(scaled: PodPool) -> None:
    kube = scaled.kube
    _wait_for_the_collector(kube)
    driver = kube.driver_of(kube.declared(), autoscaling="keda", scaler=SCALED_OBJECT)
    await kube.ready(driver, "a")
    await until_async(partial(_has_finalizer, kube, "a"))
    kube.cluster.signal("keda-operator", signal.SIGSTOP)
    try:
        await driver.stop("a")

        async def without_worker() -> bool:
            return await kube.workers("a") == []

        await until_async(without_worker)
        assert (await listed(driver))["a"].state is GroupState.STOPPING
    finally:
        kube.cluster.signal("keda-operator", signal.SIGCONT)
    await kube.until_gone(driver, "a")


def _wait_for_the_collector(kube: KubernetesSubject) -> None:
    """Wait until the cluster's garbage collector knows ScaledObjects: it looks for new kinds every half minute, and
    before that the deletion of an owner waits for none of them. One whose owner never was is collected when it does.
    """
    name = f"orphan-{secrets.token_hex(4)}"
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": str(uuid.uuid4())}
    spec = {**copy.deepcopy(SCALED_OBJECT["spec"]), "scaleTargetRef": {"name": name}}
    metadata = {"name": name, "namespace": NAMESPACE, "ownerReferences": [owner]}
    kube.cluster.apply({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": metadata, "spec": spec})
    until(
        lambda: not kube.kubectl("get", "scaledobject", name, "--ignore-not-found", "--output=name"),
        within=180,
        every=0.5,
        what="the garbage collector to know ScaledObjects",
    )


async def _has_finalizer(kube: KubernetesSubject, key: str) -> bool:
    """Whether KEDA's operator has seen a group's ScaledObject."""
    return bool(kube.get("scaledobject", kube.group(key))["metadata"].get("finalizers"))


async def test_without_keda_a_start_says_what_to_install_and_the_group_serves(
    kube: KubernetesSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another test may have started KEDA; no KEDA has this version.
    monkeypatch.setitem(SCALERS, "keda", Resource("apis/keda.sh/v0", "scaledobjects"))
    driver = kube.driver_of(kube.declared(), autoscaling="keda", scaler=SCALED_OBJECT)
    with pytest.raises(DriverError, match="install KEDA"):
        await driver.start("a")
    await kube.until_running(driver, "a")
    await driver.stop("a")
    await kube.until_gone(driver, "a")
