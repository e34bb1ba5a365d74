"""`pulumi up` of the stack `staging` on a real cluster and a real broker: what it declares runs, and answers.

One stack serves most tests: each finds it as another may have left it, and waits for what it needs.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from osrdyne_pool.topology import Users
from osrdyne_protocol.names import PoolNames
from testbed.broker import Broker
from testbed.foreign_client import Answer, ForeignClient
from testbed.kubernetes.cluster import Cluster
from testbed.waiting import until
from tests.infra.built_images import DAEMON
from tests.infra.clustered import FLIGHTS, SCRIPTED, OnCluster, on_cluster

# The first of them may have to wait for the cluster and the images.
pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.full, pytest.mark.timeout(1800)]

POOLS: list[dict[str, Any]] = [{"name": "core", "unbind_delay": 600, "stop_delay": 600}, {"name": "airports"}]
QUESTION = b'{"question": "likely-delay", "at": "2013-12-21T17:30", "origin": "JFK"}'


@pytest.fixture(scope="module")
def staging(
    cluster: Cluster, brokers: Callable[[str], Broker], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OnCluster]:
    """A stack that is up, with two pools."""
    made = on_cluster(cluster, brokers("4.3"), tmp_path_factory.mktemp("staging") / "project", "staging")
    made.values["pools"] = [dict(pool) for pool in POOLS]
    made.values["workers"] = {"core": SCRIPTED, "airports": FLIGHTS}
    made.configure()
    try:
        made.must_up()
        yield made
    finally:
        made.remove()


def ask(client: ForeignClient, key: str, body: bytes = b"") -> Answer:
    return client.ask(key, body, timeout=120)


def test_a_second_up_changes_nothing(staging: OnCluster) -> None:
    for pool in ("core", "airports"):
        staging.settled(pool)

    staging.must_up("--refresh", "--expect-no-changes")


def test_pods_are_what_the_stack_declares_and_answer_a_request_that_found_no_worker(staging: OnCluster) -> None:
    staging.settled("airports")
    # Given no worker that serves that airport, which no other test asks for
    assert not staging.workers("airports", "SEA")

    with staging.client("airports") as client:
        answer = ask(client, "SEA", QUESTION)

    assert answer.status == "ok"
    assert json.loads(answer.body)["airport"] == "SEA"
    (worker,) = staging.workers("airports", "SEA").values()
    assert json.loads(answer.body)["served_by"]["worker"].endswith(worker["metadata"]["name"])
    # And the daemons are those of the image, with the declared account, rights and settings
    daemons = list(staging.daemons("airports").values())
    assert len(daemons) == 2
    for pod in daemons:
        (container,) = pod["spec"]["containers"]
        assert container["image"] == DAEMON.name
        assert pod["spec"]["serviceAccountName"] == "airports-daemon"
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
    # And only users of the stack are connected to the vhost, each in its role
    users = Users.of("airports", staging.instance)

    def connected() -> set[str]:
        found = staging.broker.management.get("connections")
        return {
            permission["user"]
            for permission in found
            if permission["vhost"] == staging.vhost and "airports" in permission["user"]
        }

    until(lambda: connected() == {users.daemon, users.worker}, every=0.5, what="connections of the two roles")


def test_a_leader_that_is_deleted_is_followed_by_its_standby(staging: OnCluster) -> None:
    leader = staging.settled("core")
    with staging.client("core") as client:
        ask(client, "kept")
        (before,) = staging.workers("core", "kept")

        staging.cluster.kubectl("-n", staging.namespace("core"), "delete", "pod", leader, "--wait=false")

        # What is asked while no daemon leads is answered too, cold or warm
        ids = [client.send(key) for key in ("kept", "cold-without-a-leader", "kept")]
        assert {answer.status for answer in client.wait(*ids, timeout=120)} == {"ok"}
    assert staging.settled("core") != leader
    # And no worker was restarted
    assert set(staging.workers("core", "kept")) == {before}


def test_a_changed_delay_reaches_the_daemons_under_load_and_no_worker_is_restarted(staging: OnCluster) -> None:
    staging.settled("core")
    other = staging.daemons("airports").keys()
    delay = int(staging.values["pools"][0]["unbind_delay"]) + 17
    with staging.client("core") as client:
        for key in ("a", "b"):
            ask(client, key)
        before = staging.workers("core", "a").keys() | staging.workers("core", "b").keys()
        # Given a request in hand, and others that wait behind it and for keys that no worker serves
        ids = [client.send("a", b"sleep:8"), *(client.send(key) for key in ("a", "b", "new"))]

        pools = [{**POOLS[0], "unbind_delay": delay}, POOLS[1]]
        done = staging.change(pools=pools)

        ids += [client.send(key) for key in ("a", "b", "new", "newer")]
        # Then none is lost, and the workers are those from before
        assert {answer.status for answer in client.wait(*ids, timeout=120)} == {"ok"}
    assert staging.workers("core", "a").keys() | staging.workers("core", "b").keys() == before
    # And the daemons of this pool, and no others, have the new delay
    leader = staging.settled("core")
    (key,) = [key for key in staging.status("core", leader)["keys"] if key["key"] == "newer"]
    assert delay - 120 < key["unbinds_in"] <= delay + 90
    assert staging.daemons("airports").keys() == other
    assert "replace" not in done.out


def test_a_changed_template_rolls_the_workers_of_its_pool_and_no_others(staging: OnCluster) -> None:
    for pool in ("core", "airports"):
        staging.settled(pool)
    with staging.client("core") as client, staging.client("airports") as flights:
        ask(client, "a")
        ask(flights, "BOS", QUESTION)
        before, others = staging.workers("core", "a"), staging.workers("airports")
        busy = client.send("a", b"sleep:3")

        staging.change(workers={"core": {**SCRIPTED, "env": {"GREETING": "hello"}}, "airports": FLIGHTS})

        def rolled() -> bool:
            now = staging.workers("core", "a")
            return bool(now) and not now.keys() & before.keys()

        until(rolled, every=0.5, what="a worker of the new template")
        assert client.wait(busy, timeout=120)[0].status == "ok"
        assert len(client.answers[busy]) == 1
        assert ask(client, "a").status == "ok"
    (worker,) = staging.workers("core", "a").values()
    assert {"name": "GREETING", "value": "hello"} in worker["spec"]["containers"][0]["env"]
    assert staging.workers("airports").keys() == others.keys()


def test_no_password_is_in_the_clear_where_it_need_not_be(staging: OnCluster) -> None:
    staging.settled("core")
    with staging.client("core") as client:
        ask(client, "a")
    secret = staging.get("core", "secrets")["items"]
    passwords = {
        base64.b64decode(text).decode().split("://")[1].split("@")[0].split(":")[1]
        for word in secret
        for text in word["data"].values()
    }
    passwords.add(staging.broker.admin_password)
    assert len(passwords) >= 3
    token = yaml.safe_load(staging.cluster.kubeconfig.read_text())["users"][0]["user"]["client-key-data"]

    said = staging.must_up("--diff", "--show-config", "--debug", "--logtostderr", "--verbose=3").text
    project = staging.project
    said += "".join(project.must(*words, "--stack", project.stack).text for words in (["stack", "output"], ["config"]))
    kinds = "pods,deployments,replicasets,configmaps,events,services"
    said += staging.cluster.kubectl(
        "-n", staging.namespace("core"), "get", kinds, "-o", "yaml", "--show-managed-fields"
    )
    for pod in (*staging.daemons("core").values(), *staging.workers("core").values()):
        name = pod["metadata"]["name"]
        said += staging.cluster.kubectl("-n", staging.namespace("core"), "logs", name, "--tail=-1")
    files = [path for path in project.directory.rglob("*") if path.is_file() and not path.is_symlink()]
    said += "".join(path.read_bytes().decode(errors="replace") for path in files)

    hidden = {
        *passwords,
        token,
        *(base64.b64encode(password.encode()).decode().rstrip("=")[:-1] for password in passwords),
    }
    assert [word for word in hidden if word in said] == []
    assert project.exposed() == []
    # Such a search finds something where there is something
    assert "core-daemon" in said


def fresh(cluster: Cluster, broker: Broker, directory: Path) -> OnCluster:
    return on_cluster(cluster, broker, directory / "project", "staging")


def nothing_made(stack: OnCluster) -> None:
    assert stack.namespaces() == set()
    assert stack.users() == set()
    assert stack.vhost not in stack.vhosts()


def test_what_is_wrong_is_said_and_finished_by_an_up_that_is_right(
    cluster: Cluster, brokers: Callable[[str], Broker], tmp_path: Path
) -> None:
    stack = fresh(cluster, brokers("4.0"), tmp_path)
    kubeconfig, admin = cluster.kubeconfig.read_text(), stack.broker.admin_password
    try:
        # A password of the broker that is wrong
        stack.configure_for(kubeconfig, "not-the-password")
        done = stack.up()
        assert done.code != 0
        assert f"does not let user {stack.broker.admin} in: name or password is wrong" in done.text
        assert "not-the-password" not in done.text
        nothing_made(stack)

        # A vhost that another program has made
        stack.broker.management.add_vhost(stack.vhost, stack.broker.admin)
        stack.configure()
        done = stack.up()
        assert done.code != 0
        assert f"vhost {stack.vhost} is on the broker already, and not of this stack" in done.text
        assert stack.namespaces() == set()
        stack.broker.management.delete("vhosts", stack.vhost)

        # A cluster that is away
        away = kubeconfig.replace(cluster.layout.server, "https://127.0.0.1:9")
        assert away != kubeconfig
        stack.configure_for(away, admin)
        done = stack.project.pulumi("up", "--yes", "--skip-preview", "--stack", "staging")
        assert done.code != 0
        assert "the cluster at https://127.0.0.1:9 does not answer" in done.text
        assert "Traceback" not in done.text

        # And once all is right, it is made
        stack.configure()
        stack.must_up()
        stack.settled("core")
        with stack.client("core") as client:
            assert ask(client, "42").status == "ok"
        stack.must_up("--expect-no-changes")

        # A pool whose queues hold messages stays, with its daemons; then it goes, and leaves nothing
        stack.publish(PoolNames("core").poison_queue)
        refused = stack.destroy()
        assert refused.code != 0
        assert "core-poison holds 1 message" in refused.text
        assert len(stack.daemons("core")) == 2
        stack.change(lose_messages_of=["core"])
        done = stack.destroy()
        assert done.code == 0, done.text
        nothing_made(stack)
    finally:
        stack.remove()
