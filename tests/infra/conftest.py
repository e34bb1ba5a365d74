"""Fixtures: a stack `dev` of the real Pulumi on a real broker, with a vhost and users of its own."""

from __future__ import annotations

import contextlib
import secrets
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from osrdyne_pool.settings import PoolSettings
from testbed.broker import Broker
from testbed.kubernetes.building import binaries
from testbed.kubernetes.cluster import MODULES, Cluster
from testbed.pool import STATISTICS_INTERVAL
from testbed.pulumi import building
from testbed.pulumi.stack import CommandResult, Project
from testbed.waiting import until
from tests.infra.built_images import AIRPORTS, DAEMON, archives

if TYPE_CHECKING:
    from tests.infra.clustered import OnCluster


def pytest_collection_finish(session: pytest.Session) -> None:
    """Builds Pulumi, before any test that needs it has its time limit."""
    if session.config.option.collectonly:
        return
    needed = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    if needed & {"make_stack", "stack", "newest", "cluster"}:
        building.programs()
    if "yaml_project" in needed:
        building.yaml_host()
    if "cluster" in needed:
        for name in MODULES:
            binaries(name)


@dataclass
class Stack:
    """A stack with its broker."""

    project: Project
    broker: Broker
    vhost: str
    instance: str
    values: dict[str, Any]
    #: Beside the password of the broker's administrator.
    more_secrets: dict[str, str] = field(default_factory=dict, kw_only=True)

    def configure(self, **changes: Any) -> None:
        """Give the stack its configuration with these changes; None leaves a value out."""
        values = {name: value for name, value in {**self.values, **changes}.items() if value is not None}
        self.project.configure(values, {"admin_password": self.broker.admin_password, **self.more_secrets})

    def up(self, *words: str) -> CommandResult:
        return self.project.pulumi("up", "--yes", "--stack", self.project.stack, *words)

    def must_up(self, *words: str, variables: Mapping[str, str] | None = None) -> CommandResult:
        """Without a preview before, which takes as long as the rest."""
        words = ("up", "--yes", "--skip-preview", "--stack", self.project.stack, *words)
        return self.project.must(*words, variables=variables)

    def kill_an_up(self, condition: Callable[[], object], what: str) -> None:
        """Begin an `up`, and kill it with all its plugins once the condition holds."""
        process = subprocess.Popen(
            ["pulumi", "up", "--yes", "--skip-preview", "--stack", self.project.stack, "--non-interactive"],
            cwd=self.project.directory,
            env=self.project.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            until(condition, within=240, what=what)
        finally:
            plugins = psutil.Process(process.pid).children(recursive=True)
            process.kill()
            process.wait()
            for plugin in plugins:
                with contextlib.suppress(psutil.NoSuchProcess):
                    plugin.kill()

    def preview(self, *words: str) -> CommandResult:
        return self.project.pulumi("preview", "--stack", self.project.stack, *words)

    def destroy(self) -> CommandResult:
        return self.project.pulumi("destroy", "--yes", "--skip-preview", "--stack", self.project.stack)

    def pool(self, name: str = "core") -> PoolSettings:
        """The settings of a pool as the stack gives them out."""
        return PoolSettings.from_mapping(self.project.outputs()["pools"][name])

    def vhosts(self) -> set[str]:
        return {vhost["name"] for vhost in self.broker.management.get("vhosts")}

    def users(self) -> set[str]:
        """The broker users of this stack's instance."""
        names = {user["name"] for user in self.broker.management.get("users")}
        return {name for name in names if name.endswith(f".{self.instance}")}

    def publish(self, queue: str, count: int = 1) -> None:
        """Put messages into a queue, and wait until the broker's own count says so."""
        properties = {"delivery_mode": 2}
        body = {"properties": properties, "routing_key": queue, "payload": "x", "payload_encoding": "string"}
        for _ in range(count):
            self.broker.management.call("POST", "exchanges", self.vhost, "amq.default", "publish", body=body)
        until(lambda: self._messages(queue) >= count, what=f"the messages in {queue}")

    def purge(self, queue: str) -> None:
        """Empty a queue, and wait until the broker's own count says so."""
        self.broker.management.call("DELETE", "queues", self.vhost, queue, "contents")
        until(lambda: self._messages(queue) == 0, what=f"an empty {queue}")

    def _messages(self, queue: str) -> int:
        return int((self.broker.management.queue(self.vhost, queue) or {}).get("messages", 0))

    def remove(self) -> None:
        """Leave nothing on the broker, whatever state the stack is in."""
        for name in self.users():
            self.broker.management.delete("users", name)
        for name in self.vhosts():
            if name.startswith(self.vhost):
                self.broker.management.delete("vhosts", name)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """The run's cluster, which has the images of the Dockerfiles and one of scripted workers."""
    # Only these tests need the daemon's Kubernetes library, which takes its time.
    from tests.drivers.subjects.kubernetes_pool import SCRIPTED_COMMAND, SCRIPTED_IMAGE, scripted_worker

    found = archives(DAEMON, AIRPORTS)
    with Cluster() as made:
        for archive in found:
            made.load_archive(archive)
        made.load_image(SCRIPTED_IMAGE, scripted_worker(), SCRIPTED_COMMAND)
        yield made


@pytest.fixture
def fresh(cluster: Cluster, brokers: Callable[[str], Broker], tmp_path: Path) -> Iterator[OnCluster]:
    """A stack on the cluster that has no configuration yet."""
    # As above: it is the daemon's library that names the labels of workers.
    from tests.infra.clustered import on_cluster

    made = on_cluster(cluster, brokers("4.3"), tmp_path / "project", "staging")
    try:
        yield made
    finally:
        made.remove()


@pytest.fixture
def make_stack(tmp_path: Path) -> Iterator[Callable[[Broker], Stack]]:
    """Makes configured stacks to which nothing has been done yet."""
    made: list[Stack] = []

    def make(broker: Broker) -> Stack:
        mark = secrets.token_hex(4)
        directory = tmp_path / f"stack-{len(made)}"
        directory.mkdir()
        values = {
            "broker": {
                "management": broker.management_url,
                "amqp": f"amqp://127.0.0.1:{broker.amqp_port}",
                "admin": broker.admin,
                "statistics_interval": STATISTICS_INTERVAL,
            },
            "vhost": f"infra-{mark}",
            "instance": mark,
            "pools": [{"name": "core", "unbind_delay": 600, "stop_delay": 600}],
        }
        project = Project(directory, passphrase=secrets.token_hex(8))
        made.append(Stack(project, broker, f"infra-{mark}", mark, values))
        made[-1].configure()
        return made[-1]

    yield make
    for stack in made:
        stack.remove()


@pytest.fixture
def stack(make_stack: Callable[[Broker], Stack], broker: Broker) -> Stack:
    """A stack on the run's broker of each version."""
    return make_stack(broker)


@pytest.fixture
def newest(make_stack: Callable[[Broker], Stack], brokers: Callable[[str], Broker]) -> Stack:
    """A stack on one version only, for what the version has no part in."""
    return make_stack(brokers("4.3"))
