"""The whole daemon with workers in pods: real requests through a real broker."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.broker import Broker
from testbed.foreign_client import ForeignClient
from testbed.pool import Pool
from testbed.waiting import until
from tests.drivers.subjects.kubernetes import KubernetesSubject
from tests.drivers.subjects.kubernetes_pool import PodPool

pytestmark = [pytest.mark.xdist_group("kubernetes"), pytest.mark.full]


@pytest.fixture
def empty_vhost(one_broker: Broker) -> Iterator[tuple[Broker, str]]:
    broker, name = one_broker, f"test-{secrets.token_hex(6)}"
    broker.management.add_vhost(name, broker.admin)
    yield broker, name
    broker.management.delete("vhosts", name)


@pytest.fixture
def pods(kube: KubernetesSubject, empty_vhost: tuple[Broker, str], tmp_path: Path) -> Iterator[PodPool]:
    made = PodPool(kube, Pool.on(*empty_vhost, name=kube.pool, instance="one"), tmp_path)
    yield made
    made.close()


@pytest.fixture
def client(pods: PodPool) -> Iterator[ForeignClient]:
    made = ForeignClient(pods.pool.client_uri, pods.pool.names.request_exchange)
    yield made
    made.close()


def pod_names(kube: KubernetesSubject, key: str) -> set[str]:
    return {str(pod["metadata"]["name"]) for pod in kube.pods(key)}


def test_a_cold_start_is_answered_by_a_pod_that_outlives_the_daemon(pods: PodPool, client: ForeignClient) -> None:
    # Given a key that no worker serves
    daemon = pods.daemon()
    assert client.ask("LAX", b"hello").body.endswith(b"|hello")
    served_by = pod_names(pods.kube, "LAX")
    assert len(served_by) == 1
    # When the daemon is followed by another, after SIGKILL
    daemon.stop(9)
    daemon = pods.daemon()
    # Then the same pod answers, and another key is a cold start still
    assert client.ask("LAX", b"again").body.endswith(b"|again")
    assert pod_names(pods.kube, "LAX") == served_by
    assert client.ask("é/ 50%", b"hello").body.startswith("é/ 50%|".encode())
    found = daemon.key("LAX")
    assert found is not None
    assert found["state"] == "ready"


def test_a_changed_template_rolls_a_busy_group_after_its_request(pods: PodPool, client: ForeignClient) -> None:
    # Given a group with a request in hand
    daemon = pods.daemon()
    client.ask("LAX")
    before = pod_names(pods.kube, "LAX")
    busy = client.send("LAX", b"sleep:6")
    until(lambda: pods.pool.depth(pods.pool.names.request_queue("LAX")) == 1)
    # When the template changes
    daemon.stop()
    pods.declare(env=[{"name": "VERSION", "value": "2"}])
    pods.daemon()
    # Then that request is answered once, by the pod that had it, and the next by another
    assert client.wait(busy)[0].status == "ok"
    until(lambda: pod_names(pods.kube, "LAX") - before, what="a pod of the new template")
    assert client.ask("LAX", b"next").body.endswith(b"|next")
    until(lambda: not pod_names(pods.kube, "LAX") & before, what="the former pod to end")
    assert len(client.answers[busy]) == 1


def test_idle_groups_are_stopped_and_their_queues_deleted(
    kube: KubernetesSubject, empty_vhost: tuple[Broker, str], tmp_path: Path
) -> None:
    pool = Pool.on(*empty_vhost, name=kube.pool, instance="one", unbind_delay=1.0, stop_delay=1.0)
    pods = PodPool(kube, pool, tmp_path)
    client = ForeignClient(pool.client_uri, pool.names.request_exchange)
    try:
        pods.daemon()
        client.ask("LAX")
        until(lambda: not kube.pods("LAX"), what="the pod to end")
        until(lambda: pool.names.request_queue("LAX") not in pool.queues(), what="the queue to be deleted")
        # And the next request is a cold start
        assert client.ask("LAX", b"again").body.endswith(b"|again")
    finally:
        client.close()
        pods.close()
