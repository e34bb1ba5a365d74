"""The package of components in programs in YAML on the real engines: pools with jobs and a relay, and a broker."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

import pytest

import versions
from osrdyne_jobs import JobClient
from osrdyne_relay.http.access import sha256_of
from testbed import redis
from testbed.kubernetes.cluster import Cluster
from testbed.postgres import Postgres
from testbed.waiting import until
from tests.infra.built_images import DAEMON
from tests.infra.clustered import RESOURCES, SCRIPTED, OnCluster
from tests.infra.test_deployed_broker import ADMIN, DISK, IMAGE, DeployedBroker, disk, load_image
from tests.infra.test_jobs_on_cluster import JOBS_WORKER, NOTED, server
from tests.infra.test_package import YamlProject, project_with_package
from tests.infra.test_relay_on_cluster import NODES, REDIS_IMAGE, WORKER, node, running, worker

__all__ = ["server"]
# The first of them may have to wait for the cluster and the images.
pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.full, pytest.mark.timeout(1800)]


@pytest.fixture
def settings(fresh: OnCluster, server: Postgres) -> dict[str, Any]:
    """Two pools on the cluster: one has jobs, and the workers of the other poll at the relay."""
    files, command = redis.as_image()
    fresh.cluster.load_image(REDIS_IMAGE, files, command)
    fresh.cluster.forward(server.port)
    return {
        **fresh.values,
        "pools": [{"name": "core", "jobs": {"redo": {"interval": 1, "lease": 5}}}, {"name": "polled"}],
        "workers": {"core": JOBS_WORKER},
        "jobs": {
            "database": f"postgresql://127.0.0.1:{server.port}",
            "inside_database": f"postgresql://{fresh.cluster.gateway}:{server.port}",
            "admin": server.admin,
        },
        "relay": {
            "redis": {"image": REDIS_IMAGE, "command": command, "resources": RESOURCES},
            "nodes": {"resources": RESOURCES},
            "clients": {"lax": {"token_sha256": sha256_of(WORKER), "serve": ["polled/LAX"]}},
            "pools": ["polled"],
            "settings": {"serve": {"plain_http": True}},
        },
    }


def in_yaml(directory: Path, kind: str, given: dict[str, Any], passwords: dict[str, str], *outputs: str) -> YamlProject:
    """Return a project in YAML of one component. Its secrets are configuration, and properties of their names."""
    project = project_with_package(directory)
    made = {
        "name": "trains",
        "runtime": "yaml",
        "packages": {"osrdyne": f"osrdyne@{versions.current()}"},
        "config": {name: {"type": "string", "secret": True} for name in passwords},
        "resources": {
            "trains": {"type": kind, "properties": {**given, **{name: f"${{{name}}}" for name in passwords}}}
        },
        "outputs": {name: f"${{trains.{name}}}" for name in outputs},
    }
    # JSON is YAML, too, and without the aliases that Pulumi does not take.
    (project.directory / "Pulumi.yaml").write_text(json.dumps(made))
    project.must("stack", "init", project.stack)
    for name, word in passwords.items():
        project.must("config", "set", "--stack", project.stack, "--secret", name, stdin=word)
    project.secrets = {name: word for name, word in passwords.items() if name != "kubeconfig"}
    return project


@pytest.fixture
def yaml_project(fresh: OnCluster, server: Postgres, settings: dict[str, Any], tmp_path: Path) -> YamlProject:
    """Pools in YAML with these settings."""
    passwords = {
        "admin_password": fresh.broker.admin_password,
        "jobs_admin_password": server.admin_password,
        "kubeconfig": fresh.cluster.kubeconfig.read_text(),
    }
    return in_yaml(tmp_path / "own", "osrdyne:Pools", settings, passwords, "addresses", "databases", "namespaces")


def up_twice(program: YamlProject) -> None:
    """Apply a program; a second time changes nothing."""
    for words in ((), ("--expect-no-changes",)):
        made = program.up(*words)
        assert made.code == 0, made.text


def test_a_program_in_yaml_has_jobs_and_a_relay_on_a_cluster_and_takes_all_away(
    yaml_project: YamlProject, fresh: OnCluster, server: Postgres
) -> None:
    program = yaml_project
    up_twice(program)
    outputs = program.outputs()
    assert outputs["namespaces"] == {pool: fresh.namespace(pool) for pool in ("core", "polled")}

    # A job is done by a worker on the cluster
    address = outputs["databases"]["core"]["jobs"].replace(f"@{fresh.cluster.gateway}:", "@127.0.0.1:")
    with JobClient(address, [NOTED]) as jobs:
        number = jobs.submit("noted", "JFK", {}).id
        until(lambda: jobs.get(number).state == "done", every=0.5, what="the job")

    # A worker that polls at the relay answers a request of the other pool
    fresh.project = program
    pod = next(iter(running(fresh, NODES)))
    with node(fresh, pod) as url, worker(url, "polled/LAX"), fresh.client("polled") as client:
        answer = client.ask("LAX", b"hello", timeout=120)
    assert (answer.status, answer.body) == ("ok", b"HELLO")

    assert program.exposed() == []
    done = program.destroy()
    assert done.code == 0, done.text
    assert fresh.namespaces() == fresh.users() == set()


def test_a_broker_in_yaml_serves_pools_in_yaml_on_a_cluster(cluster: Cluster, tmp_path: Path) -> None:
    load_image(cluster)
    mark = secrets.token_hex(4)
    deployed = DeployedBroker(cluster, f"t-{mark}", f"infra-{mark}", secrets.token_hex(16))
    passwords = {"admin_password": deployed.password, "kubeconfig": cluster.kubeconfig.read_text()}
    kubernetes = {"namespace": deployed.namespace}
    deployment = {"kind": "statefulset", "admin": ADMIN, "image": IMAGE, "storage": "1Gi", "storage_class": DISK}
    given: dict[str, Any] = {"broker_deployment": deployment, "kubernetes": kubernetes}
    broker = in_yaml(tmp_path / "broker", "osrdyne:BrokerOnCluster", given, passwords, "management", "amqp")
    with disk(cluster, deployed.namespace):
        try:
            up_twice(broker)
            deployed.until_ready()
            where = broker.outputs()
            with deployed.forwarded(15672) as address:
                reached = {
                    "management": f"http://{address}",
                    "inside_management": where["management"],
                    "amqp": where["amqp"],
                    "admin": ADMIN,
                }
                given = {
                    "broker": reached,
                    "vhost": deployed.vhost,
                    "instance": mark,
                    "pools": [{"name": "core"}],
                    "kubernetes": {**kubernetes, "daemon": {"image": DAEMON.name, "resources": RESOURCES}},
                    "workers": {"core": SCRIPTED},
                }
                pools = in_yaml(tmp_path / "pools", "osrdyne:Pools", given, passwords, "addresses")
                up_twice(pools)
                assert deployed.ask(pools.outputs()["addresses"]["core"]["client"], "42") == "ok"
                assert (broker.exposed(), pools.exposed()) == ([], [])
                done = pools.destroy()
                assert done.code == 0, done.text
            done = broker.destroy()
            assert done.code == 0, done.text
            assert f"namespace/{deployed.namespace}" not in cluster.kubectl("get", "namespaces", "-o", "name").split()
        finally:
            deployed.remove()
