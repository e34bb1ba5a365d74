"""Components on a real cluster: in a program that is not ours, and over a stack that an earlier program made."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import versions
from osrdyne_protocol.names import PoolNames
from testbed.broker import Broker
from testbed.foreign_client import ForeignClient
from testbed.kubernetes.cluster import Cluster
from tests.infra.built_images import AIRPORTS, DAEMON
from tests.infra.clustered import OnCluster, on_cluster, prometheus_operator
from tests.infra.test_components import FORMER, OwnProject, give, made_by, made_by_ours, programs
from tests.infra.test_staging import QUESTION

# The first of them may have to wait for the cluster and the images.
pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.full, pytest.mark.timeout(1800)]


@pytest.fixture
def fresh(cluster: Cluster, brokers: Callable[[str], Broker], tmp_path: Path) -> Iterator[OnCluster]:
    """A stack to which nothing has been done yet."""
    made = on_cluster(cluster, brokers("4.3"), tmp_path / "project", "staging")
    try:
        yield made
    finally:
        made.remove()


def test_a_pool_of_a_program_that_is_not_ours_answers_a_call(fresh: OnCluster, tmp_path: Path) -> None:
    broker, gateway = fresh.broker, fresh.cluster.gateway
    (tmp_path / "own").mkdir()
    project = OwnProject(tmp_path / "own", passphrase="phrase", variables={"KUBECONFIG": str(fresh.cluster.kubeconfig)})
    project.write(
        programs()[1],
        {
            '"admin": "admin"': f'"admin": "{broker.admin}"',
            "rabbitmq.example:15672": f"{gateway}:{broker.management_port}",
            "rabbitmq.example:5672": f"{gateway}:{broker.amqp_port}",
            'vhost="trains"': f'vhost="{fresh.vhost}"',
            '"trial"': f'"{fresh.instance}"',
            '"namespace": "trains"': f'"namespace": "{fresh.beginning}"',
            f"registry.example/osrdyne:{versions.current()}": DAEMON.name,
            f"registry.example/osrdyne-airports:{versions.current()}": AIRPORTS.name,
        },
    )
    project.must("stack", "init", project.stack)
    give(project, broker.admin_password)

    project.must("up", "--yes", "--skip-preview", "--stack", project.stack)
    project.must("up", "--yes", "--skip-preview", "--stack", project.stack, "--expect-no-changes")

    fresh.settled("core")
    address = project.outputs()["addresses"]["client"].replace(gateway, "127.0.0.1")
    client = ForeignClient(address, PoolNames("core").request_exchange)
    try:
        answer = client.ask("SEA", QUESTION, timeout=120)
    finally:
        client.close()
    assert answer.status == "ok"
    assert json.loads(answer.body)["airport"] == "SEA"
    project.must("destroy", "--yes", "--skip-preview", "--stack", project.stack)
    assert fresh.namespaces() == fresh.users() == set()


def test_a_stack_that_the_former_program_made_keeps_every_resource(fresh: OnCluster) -> None:
    prometheus_operator(fresh.cluster)
    fresh.values["kubernetes"] |= {
        "monitoring": "prometheus-operator",
        "network_policy": {"broker": [f"{fresh.cluster.gateway}/32"]},
    }
    fresh.configure()
    made_by(fresh, FORMER)
    fresh.must_up()
    leader = fresh.settled("core")

    made_by_ours(fresh)
    done = fresh.must_up()

    # What watches it is newer, and settings are shorter; so daemons restart. No resource is made, deleted or replaced
    changed = set(re.findall(r"^ *[@+~-]+ +(kubernetes:\S+ \S+) (?:creat|updat|delet|replac)", done.text, re.MULTILINE))
    assert {resource.rpartition(":")[2] for resource in changed} <= {
        "PrometheusRule core-daemon-prometheusrule",
        "ConfigMap core-dashboard",
        "ConfigMap core-settings",
        "Deployment core-daemon",
    }
    assert not re.search(r"creat|delet|replac", done.text.partition("Resources:")[2])
    assert fresh.settled("core") != leader
    fresh.must_up("--expect-no-changes")
