"""A pool with jobs by `pulumi up`, on a real cluster, a real broker and a real PostgreSQL."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from osrdyne_jobs import JobClient, JobType
from osrdyne_protocol.names import DatabaseNames
from testbed.postgres import Postgres, PostgresFailed
from testbed.waiting import until
from tests.infra.built_images import DAEMON
from tests.infra.clustered import RESOURCES, OnCluster

# The first of them may have to wait for the cluster and the images.
pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.full, pytest.mark.timeout(1800)]

NOTED = JobType("noted")
#: The image of the daemon has what a worker of jobs needs.
WORKER = """
from osrdyne_jobs import JobType, JobWorker, engine_from_environment
JobWorker(engine_from_environment(), {JobType("noted"): lambda run: None}).run()
"""
JOBS_WORKER = {
    "image": DAEMON.name,
    "command": ["python3", "-c", WORKER],
    "resources": RESOURCES,
    "pod": {"terminationGracePeriodSeconds": 20},
}


@pytest.fixture
def server() -> Iterator[Postgres]:
    with Postgres() as own:
        yield own


@pytest.fixture
def stack(fresh: OnCluster, server: Postgres) -> OnCluster:
    """A stack whose pool has jobs, to which nothing has been done yet."""
    fresh.cluster.forward(server.port)
    fresh.values |= {
        "pools": [{"name": "core", "jobs": {"redo": {"interval": 1, "lease": 5}}}],
        "workers": {"core": JOBS_WORKER},
        "jobs": {
            "database": f"postgresql://127.0.0.1:{server.port}",
            "inside_database": f"postgresql://{fresh.cluster.gateway}:{server.port}",
            "admin": server.admin,
        },
    }
    fresh.more_secrets = {"jobs_admin_password": server.admin_password}
    fresh.configure()
    return fresh


def redo(stack: OnCluster) -> dict[str, dict[str, Any]]:
    return stack.pods("core", "app.kubernetes.io/name=osrdyne-redo,app.kubernetes.io/instance=core")


def address(stack: OnCluster, role: str = "jobs") -> str:
    """The address that the stack gives out, as this machine reaches it."""
    given: str = stack.project.outputs()["databases"]["core"][role]
    return given.replace(f"@{stack.cluster.gateway}:", "@127.0.0.1:")


def do_job(stack: OnCluster, resource: str) -> None:
    """Register a job without a client of the pool, so that redo has to cast it."""
    with JobClient(address(stack), [NOTED]) as jobs:
        number = jobs.submit("noted", resource, {}).id
        until(lambda: jobs.get(number).state == "done", every=0.5, what=f"the job of {resource}")


def test_jobs_are_done_a_second_up_changes_nothing_and_destroy_leaves_the_jobs(
    stack: OnCluster, server: Postgres
) -> None:
    preview = stack.preview()
    assert preview.code == 0, preview.text
    stack.must_up()

    # Redo casts what was registered, and a worker that the daemon starts does it
    do_job(stack, "JFK")
    pods = redo(stack)
    assert len(pods) == 2
    for pod in pods.values():
        assert [container["name"] for container in pod["spec"]["initContainers"]] == ["migrate"]
        assert all(status["ready"] for status in pod["status"]["containerStatuses"])
    stack.must_up("--refresh", "--expect-no-changes")

    # A password is changed: both go on without a restart
    before = address(stack)
    stack.change(rotate={"core": {"jobs": "again"}})
    assert address(stack) != before
    do_job(stack, "BOS")
    assert redo(stack).keys() == pods.keys()

    # No password is where it need not be
    words = {secret: address(stack, secret).split("@")[0].rpartition(":")[2] for secret in ("jobs", "jobs-owner")}
    kinds = "pods,deployments,replicasets,configmaps,events"
    said = stack.cluster.kubectl("-n", stack.namespace("core"), "get", kinds, "-o", "yaml")
    for pod in redo(stack).values():
        said += stack.cluster.kubectl(
            "-n", stack.namespace("core"), "logs", pod["metadata"]["name"], "--all-containers"
        )
    files = [path for path in stack.project.directory.rglob("*") if path.is_file() and not path.is_symlink()]
    said += "".join(path.read_bytes().decode(errors="replace") for path in files)
    assert [word for word in (*words.values(), server.admin_password) if word in said] == []
    assert "core-redo" in said
    assert stack.project.exposed() == []

    # And then nothing is left but the jobs
    done = stack.destroy()
    assert done.code == 0, done.text
    assert stack.namespaces() == set()
    names = DatabaseNames.of("core", stack.instance)
    assert server.psql("SELECT count(*) FROM osrdyne_job", names.database) == "2"
    with pytest.raises(PostgresFailed, match="not permitted to log in"):
        server.psql("SELECT 1", names.database, names.database, words["jobs"])


def test_a_server_that_refuses_is_said_in_a_preview_and_nothing_is_made(stack: OnCluster, server: Postgres) -> None:
    wrong = secrets.token_hex(8)
    stack.more_secrets = {"jobs_admin_password": wrong}
    stack.configure()
    done = stack.preview()

    assert done.code != 0
    assert "password authentication failed" in done.text
    assert "osrdyne:jobs_admin_password" in done.text
    assert "Traceback" not in done.text
    assert wrong not in done.text
    assert stack.namespaces() == set()
