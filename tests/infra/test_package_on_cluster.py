"""The package of components in a program in YAML: a cluster, a pool with jobs and a relay, on the real engines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import versions
from osrdyne_jobs import JobClient
from osrdyne_relay.http.access import sha256_of
from testbed import redis
from testbed.postgres import Postgres
from testbed.waiting import until
from tests.infra.clustered import RESOURCES, OnCluster
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


@pytest.fixture
def yaml_project(fresh: OnCluster, server: Postgres, settings: dict[str, Any], tmp_path: Path) -> YamlProject:
    """A program in YAML with these settings; its secrets are configuration."""
    project = project_with_package(tmp_path / "own")
    secrets = {
        "admin_password": fresh.broker.admin_password,
        "jobs_admin_password": server.admin_password,
        "kubeconfig": fresh.cluster.kubeconfig.read_text(),
    }
    made = {
        "name": "trains",
        "runtime": "yaml",
        "packages": {"osrdyne": f"osrdyne@{versions.current()}"},
        "config": {name: {"type": "string", "secret": True} for name in secrets},
        "resources": {
            "trains": {
                "type": "osrdyne:Pools",
                "properties": {**settings, **{name: f"${{{name}}}" for name in secrets}},
            }
        },
        "outputs": {name: f"${{trains.{name}}}" for name in ("addresses", "databases", "namespaces")},
    }
    # JSON is YAML, too, and without the aliases that Pulumi does not take.
    (project.directory / "Pulumi.yaml").write_text(json.dumps(made))
    project.must("stack", "init", project.stack)
    for name, word in secrets.items():
        project.must("config", "set", "--stack", project.stack, "--secret", name, stdin=word)
    project.secrets = {name: secrets[name] for name in ("admin_password", "jobs_admin_password")}
    return project


def test_a_program_in_yaml_has_jobs_and_a_relay_on_a_cluster_and_takes_all_away(
    yaml_project: YamlProject, fresh: OnCluster, server: Postgres
) -> None:
    program = yaml_project
    made = program.up()
    assert made.code == 0, made.text
    again = program.up("--expect-no-changes")
    assert again.code == 0, again.text
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
