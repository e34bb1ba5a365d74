"""Every block of commands in docs/howto/pulumi.md and pulumi-kubernetes.md does what the page says, in its order."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import steps
import versions
from testbed.broker import Broker
from testbed.kubernetes.building import binaries
from testbed.kubernetes.cluster import Cluster
from testbed.pulumi.stack import Project
from tests.infra.built_images import AIRPORTS, DAEMON
from tests.infra.clustered import on_cluster, prometheus_operator
from tests.infra.conftest import Stack

#: A word of each block, in the order of the page.
TELLING = (
    "export PATH",
    "stack init",
    "admin_password <",
    "hand_over credentials\ncat",
    "orphan_ttl",
    "rotate",
    "config set --path 'osrdyne:pools[1].name'",
    "config rm",
    "--diff",
    "destroy",
)
TELLING_ON_A_CLUSTER = (
    "export PATH",
    "stack init staging-broker",
    "stack init staging\n",
    "stack init prod",
    "unbind_delay",
    "rotate",
    "config rm",
    "set --stack staging adopt true",
    "patch pvc",
    "--diff",
    "stack rm --yes staging-broker",
)


def blocks(page: str) -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```", Path(steps.ROOT, page).read_text(), re.MULTILINE | re.DOTALL)


DEV, CLUSTER = blocks("docs/howto/pulumi.md"), blocks("docs/howto/pulumi-kubernetes.md")


class Shell:
    """Runs blocks one after the other, each in a shell that has the variables of those before."""

    def __init__(self, project: Project, replacements: dict[str, str], **variables: str) -> None:
        self._directory, self._replacements = project.directory, replacements
        own = project.environment()
        self._variables = {name: own[name] for name in ("PATH", "HOME", "PULUMI_SKIP_UPDATE_CHECK")} | variables

    def run(self, block: str) -> str:
        for old, new in self._replacements.items():
            block = block.replace(old, new)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f"{block}\nenv -0 > variables"],
            check=False,
            cwd=self._directory,
            env=self._variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"
        pairs = (Path(self._directory, "variables").read_text().rstrip("\0")).split("\0")
        self._variables = dict(pair.split("=", 1) for pair in pairs)
        return done.stdout + done.stderr


def test_every_block_of_the_page_is_known_here() -> None:
    for telling, found in ((TELLING, DEV), (TELLING_ON_A_CLUSTER, CLUSTER)):
        assert len(found) == len(telling)
        assert [word for word, block in zip(telling, found, strict=True) if word not in block] == []


@pytest.mark.timeout(900)
def test_the_page_leads_from_nothing_to_a_pool_and_back(
    brokers: Callable[[str], Broker], make_stack: Callable[[Broker], Stack], tmp_path: Path
) -> None:
    broker = brokers("4.3")
    stack = make_stack(broker)
    (tmp_path / "page").mkdir()
    project = Project(tmp_path / "page", passphrase="")
    (project.directory / "admin.password").write_text(broker.admin_password)
    (project.directory / ".venv").symlink_to(steps.ROOT / ".venv")
    # The page's own names and addresses would meet those of other tests.
    file = project.stacks / "Pulumi.dev.yaml"
    text = (
        file.read_text().replace("osrdyne-dev", stack.vhost).replace("instance: dev", f"instance: '{stack.instance}'")
    )
    file.write_text(text)
    shell = Shell(
        project,
        {
            "http://127.0.0.1:15672": broker.management_url,
            "amqp://127.0.0.1:5672": f"amqp://127.0.0.1:{broker.amqp_port}",
        },
    )
    management = broker.management
    pages = iter(DEV)

    for _ in range(3):
        shell.run(next(pages))
    assert len(stack.users()) == 6
    said = shell.run(next(pages))
    assert "nothing found" in said
    assert not re.search(r"amqp://[^ ]*:[^ ]*@", said)
    assert (project.directory / "credentials/core/worker.uri").stat().st_mode & 0o777 == 0o600

    shell.run(next(pages))
    policy = management.get("policies", stack.vhost, "core-orphan")
    assert policy["definition"]["message-ttl"] == 900_000

    before = (project.directory / "credentials/core/worker.uri").read_text()
    shell.run(next(pages))
    assert (project.directory / "credentials/core/worker.uri").read_text() != before
    assert "examples.airports.worker" in (project.directory / "credentials/core/settings.toml").read_text()

    shell.run(next(pages))
    assert len(stack.users()) == 12
    shell.run(next(pages))
    assert len(stack.users()) == 6

    said = shell.run(next(pages))
    assert "replace" not in said

    shell.run(next(pages))
    assert stack.users() == set()
    assert stack.vhost not in stack.vhosts()
    assert list(pages) == []


@pytest.mark.timeout(1800)
@pytest.mark.xdist_group("cluster")
def test_the_page_leads_from_nothing_to_a_pool_on_a_cluster_and_back(
    cluster: Cluster, brokers: Callable[[str], Broker], tmp_path: Path
) -> None:
    broker = brokers("4.3")
    stack = on_cluster(cluster, broker, tmp_path / "page", "staging")
    project, given = stack.project, stack.values["broker"]
    for name in ("admin.password", "staging.password"):
        (project.directory / name).write_text(broker.admin_password)
    (project.directory / "prod.kubeconfig").write_text(cluster.kubeconfig.read_text())
    (project.directory / ".venv").symlink_to(steps.ROOT / ".venv")
    # The page's own names and addresses would meet those of other tests, or are nowhere.
    replacements = {
        "http://127.0.0.1:15672": given["management"],
        "http://broker.osrdyne-staging.svc:15672": given["inside_management"],
        "amqp://broker.osrdyne-staging.svc:5672": given["amqp"],
        "https://rabbitmq.example:15671": given["management"],
        "amqps://rabbitmq.example:5671": given["amqp"],
        "vhost: osrdyne-staging": f"vhost: {stack.vhost}",
        "vhost: osrdyne\n": f"vhost: {stack.vhost}-prod\n",
        "instance: staging": f"instance: '{stack.instance}'",
        "namespace: osrdyne-staging": f"namespace: {stack.beginning}",
        "namespace: osrdyne\n": f"namespace: {stack.beginning}-prod\n",
    }
    for file in project.stacks.glob("Pulumi.*.yaml"):
        text = file.read_text()
        for old, new in replacements.items():
            text = text.replace(old, new)
        file.write_text(text)
    images = {
        f"registry.example/osrdyne:{versions.current()}": DAEMON.name,
        f"registry.example/osrdyne-airports:{versions.current()}": AIRPORTS.name,
        # What a test made of it is the broker's password here.
        'secrets.token_hex(16), end=""': 'open("admin.password").read(), end=""',
    }
    # What the stack of `prod` needs.
    binaries("keda")
    cluster.start_keda()
    prometheus_operator(cluster)
    shell = Shell(project, images, KUBECONFIG=str(cluster.kubeconfig))
    pages = iter(CLUSTER)
    try:
        shell.run(next(pages))
        # Of a broker that the stack deploys, no more than a plan; test_deployed_broker.py has one that runs.
        said = shell.run(next(pages).replace("pulumi up --yes", "pulumi preview"))
        assert "kubernetes:apps/v1:StatefulSet" in said

        shell.run(next(pages))
        assert len(stack.users()) == 6
        assert len(stack.daemons("core")) == 2
        leader = stack.settled("core")

        said = shell.run(next(pages).replace("pulumi up --yes", "true"))
        assert "kubernetes:networking.k8s.io/v1:NetworkPolicy" in said

        shell.run(next(pages))
        assert stack.settled("core") != leader
        secret = stack.get("core", "secret", "core-worker")["data"]
        shell.run(next(pages))
        assert stack.get("core", "secret", "core-worker")["data"] != secret

        added, removed = next(pages).split("pulumi config rm", 1)
        shell.run(added)
        assert stack.namespaces() == {stack.namespace("core"), stack.namespace("other")}
        shell.run(f"pulumi config rm{removed}")
        assert stack.namespaces() == {stack.namespace("core")}

        # There is no `up` to cancel; test_failed_ups.py has one.
        cancel, adopt = next(pages).split("\n", 1)
        assert cancel == "pulumi cancel --yes --stack staging"
        assert "core-daemon" not in shell.run(adopt)
        # The broker's disk is in test_deployed_broker.py.
        next(pages)

        said = shell.run(next(pages))
        assert "replace" not in said

        shell.run(next(pages).replace("pulumi destroy --stack staging-broker --yes", "true"))
        assert stack.namespaces() == stack.users() == set()
        assert stack.vhost not in stack.vhosts()
        assert list(pages) == []
    finally:
        stack.remove()
