"""What each failure of an `up` on a cluster leaves, and how it is finished: the table of the page, row by row."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from osrdyne_protocol.names import PoolNames
from testbed.broker import Broker
from testbed.kubernetes.cluster import Cluster
from testbed.pulumi.building import released
from testbed.waiting import until
from tests.infra.clustered import OnCluster, on_cluster

# The first of them may have to wait for the cluster and the images.
pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.full, pytest.mark.timeout(1800)]

POISON = PoolNames("core").poison_queue


@pytest.fixture
def fresh(fresh: OnCluster) -> OnCluster:
    """A stack to which nothing has been done yet."""
    fresh.configure()
    return fresh


@pytest.fixture(scope="module")
def running(
    cluster: Cluster, brokers: Callable[[str], Broker], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OnCluster]:
    """A stack that is up. Each test leaves it so."""
    made = on_cluster(cluster, brokers("4.3"), tmp_path_factory.mktemp("running") / "project", "staging")
    made.configure()
    try:
        made.must_up()
        yield made
    finally:
        made.remove()


def login(stack: OnCluster, token: str, **changes: str) -> str:
    """The kubeconfig with another login, and changes of the cluster's entry."""
    found = yaml.safe_load(stack.cluster.kubeconfig.read_text())
    found["users"] = [{"name": user["name"], "user": {"token": token}} for user in found["users"]]
    for cluster in found["clusters"]:
        cluster["cluster"] |= changes
    return json.dumps(found)


def refused(stack: OnCluster, kubeconfig: str) -> str:
    """What a preview says that has to be refused."""
    stack.configure_for(kubeconfig, stack.broker.admin_password)
    done = stack.preview()
    assert done.code != 0, done.text
    assert "Traceback" not in done.text
    return done.text


def deployment(stack: OnCluster) -> dict[str, Any]:
    return dict(stack.get("core", "deployment", "core-daemon"))


def uid(stack: OnCluster, *words: str) -> str:
    return str(stack.get("core", *words)["metadata"]["uid"])


def impatient(stack: OnCluster) -> None:
    """Give the stack a copy of the program that waits for a rollout for 20 seconds, not for 300."""
    package = stack.project.directory / "infra/osrdyne_infra"
    source = package.resolve()
    package.unlink()
    shutil.copytree(source, package, ignore=shutil.ignore_patterns("__pycache__"))
    access = package / "cluster/access.py"
    text = access.read_text()
    assert text.count("PROGRESS_SECONDS = 300\n") == 1
    access.write_text(text.replace("PROGRESS_SECONDS = 300\n", "PROGRESS_SECONDS = 20\n"))


def test_a_preview_refuses_a_cluster_that_is_away_or_refuses_a_login_or_lacks_an_operator(
    fresh: OnCluster,
) -> None:
    given = fresh.cluster.kubeconfig.read_text()
    said = refused(fresh, given.replace(fresh.cluster.layout.server, "https://127.0.0.1:9"))
    assert "the cluster at https://127.0.0.1:9 does not answer: [Errno 111] Connection refused" in said

    said = refused(fresh, login(fresh, "not-a-token"))
    assert f"the cluster at {fresh.cluster.layout.server} refuses the credentials of osrdyne:kubeconfig: 401" in said

    fresh.project.stack = "staging-broker"
    fresh.project.must("stack", "init", "staging-broker")
    operated = {"kind": "cluster-operator", "admin": "admin", "image": "osrdyne.invalid/rabbitmq:4.3", "storage": "1Gi"}
    fresh.values = {"broker_deployment": operated, "kubernetes": {"namespace": fresh.beginning}}
    said = refused(fresh, given)
    assert "osrdyne:broker_deployment.kind: the cluster at" in said
    assert "has no API rabbitmq.com; install the RabbitMQ Cluster Operator, or change the setting" in said

    assert fresh.vhost not in fresh.vhosts()
    assert fresh.namespaces() == set()


def test_queues_are_guarded_also_where_a_first_up_failed_on_the_cluster(fresh: OnCluster) -> None:
    # Given a login that may read what the cluster has, and may make nothing
    fresh.cluster.kubectl("-n", "default", "create", "serviceaccount", fresh.instance)
    token = fresh.cluster.kubectl("-n", "default", "create", "token", fresh.instance).strip()
    fresh.configure_for(login(fresh, token), fresh.broker.admin_password)
    failed = fresh.up("--skip-preview", "--continue-on-error")
    assert failed.code != 0
    assert "forbidden" in failed.text
    fresh.publish(POISON)

    done = fresh.destroy()

    assert done.code != 0
    assert f"{POISON} holds 1 message" in done.text
    assert fresh.broker.management.queue(fresh.vhost, POISON)

    # And the right login finishes it
    fresh.configure()
    fresh.must_up()
    fresh.settled("core")
    fresh.must_up("--refresh", "--expect-no-changes")


def test_a_rollout_that_does_not_become_ready_is_given_up_and_finished_by_an_up_that_is_right(fresh: OnCluster) -> None:
    impatient(fresh)
    fresh.must_up()
    leader = fresh.settled("core")
    before = fresh.daemons("core").keys()
    right = fresh.values["kubernetes"]
    broken = {**right["daemon"], "image": "osrdyne.invalid/nowhere:1", "pull_policy": "Never"}
    fresh.configure(kubernetes={**right, "daemon": broken})

    # Given up before the ten minutes that the provider has for every rollout, and longer than a test may take
    failed = fresh.up("--skip-preview")

    assert failed.code != 0
    assert "core-daemon" in failed.text
    # The former daemons go on
    assert before <= fresh.daemons("core").keys()
    assert fresh.settled("core") == leader
    fresh.configure()
    fresh.must_up("--refresh")
    until(lambda: fresh.daemons("core").keys() == before, every=0.5, what="no other daemons")
    fresh.must_up("--refresh", "--expect-no-changes")


def test_an_up_that_was_killed_while_a_rollout_was_awaited_is_finished_by_adopting(fresh: OnCluster) -> None:
    """A provider of 4.29 or later refuses to go on without `adopt`. That of the tests, if it is built, never does."""
    fresh.kill_an_up(
        lambda: fresh.namespaces() and "core-daemon" in fresh.cluster.kubectl("get", "deployments", "-A"),
        "the daemons' Deployment",
    )
    locked = fresh.up("--skip-preview")
    assert locked.code != 0
    assert "pulumi cancel" in locked.text
    fresh.project.must("cancel", "--yes", "--stack", "staging")
    if released():
        refused = fresh.up("--skip-preview")
        assert refused.code != 0
        assert "already exists" in refused.text
    fresh.configure(adopt=True)

    fresh.must_up()

    fresh.settled("core")
    fresh.configure()
    fresh.must_up()
    fresh.must_up("--refresh", "--expect-no-changes")


def test_another_address_of_the_same_cluster_replaces_nothing(running: OnCluster) -> None:
    given = running.cluster.kubeconfig.read_text()
    server = running.cluster.layout.server
    running.configure_for(given.replace(server, f"{server}/"), running.broker.admin_password)

    done = running.preview()

    assert done.code == 0, done.text
    assert "replace" not in done.out
    assert "delete" not in done.out
    running.configure()


def test_another_identifier_is_another_cluster_where_all_is_made_again(running: OnCluster) -> None:
    running.configure(kubernetes={**running.values["kubernetes"], "identifier": "elsewhere"})

    done = running.preview()

    assert done.code == 0, done.text
    assert [line for line in done.out.splitlines() if "Namespace" in line and "replace" in line]
    running.configure()


def test_changed_settings_and_passwords_change_their_objects_in_place(running: OnCluster) -> None:
    settings, secret = ("configmap", "core-settings"), ("secret", "core-worker")
    before = [uid(running, *words) for words in (settings, secret)]
    password = running.get("core", *secret)["data"]

    done = running.change(pools=[{"name": "core", "unbind_delay": 617}], rotate={"core": {"worker": 2}})

    replaced = [line for line in done.out.splitlines() if "replace" in line]
    assert [line for line in replaced if "ConfigMap" in line or "Secret" in line] == []
    assert [uid(running, *words) for words in (settings, secret)] == before
    assert "617" in running.get("core", *settings)["data"]["settings.toml"]
    assert running.get("core", *secret)["data"] != password


def test_replicas_that_a_person_changed_are_those_of_the_stack_again(running: OnCluster) -> None:
    running.cluster.kubectl("-n", running.namespace("core"), "scale", "deployment", "core-daemon", "--replicas=1")
    assert deployment(running)["spec"]["replicas"] == 1

    running.must_up("--refresh")

    assert deployment(running)["spec"]["replicas"] == 2
    running.settled("core")
    running.must_up("--refresh", "--expect-no-changes")
