"""A stack comes from the release before to this one by Pulumi, and back, while its pool is called.

On a broker, the stack declares what the programs of a pool stand on. On a cluster it has the daemons and the workers,
too: their images are settings, so a stack chooses which of them comes first.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from testbed import ROOT
from testbed.kubernetes.cluster import Cluster
from testbed.pulumi.stack import CommandResult
from testbed.waiting import until
from tests.conftest import Vhost
from tests.infra.built_images import DAEMON, Recipe, archives
from tests.infra.clustered import RESOURCES, OnCluster
from tests.infra.conftest import Stack, cluster, fresh, make_stack, newest
from tests.release.live_pool import CALLER, LATEST_SECONDS, WORKER, LivePool, check_all_answered, live_pool
from tests.release.two_versions import KEYS, Answers, Caller, Version, commit_before, lines

__all__ = ["cluster", "fresh", "make_stack", "newest"]
# The first of them may have to wait for the cluster and the images.
pytestmark = [pytest.mark.full, pytest.mark.xdist_group("cluster"), pytest.mark.timeout(2400)]

PAGE = ROOT / "docs/upgrading.md"
#: Says which pod answered, and of which release: the one before has no module of that name.
ANSWER = """
import os
from importlib.util import find_spec
from osrdyne_worker import run
release = "after" if find_spec("osrdyne_pool.differences") else "before"
run(lambda request: f"{os.environ['HOSTNAME']} {release}".encode())
"""
#: Variables by which the Kubernetes provider changes ConfigMaps and Secrets in place.
MUTABLE = re.findall(r"\b(PULUMI_K8S_\w+)=true", PAGE.read_text())
#: What a pod asks for: the node of the tests has few cores.
SMALL = {**RESOURCES, "requests": {"cpu": "10m", "memory": "64Mi"}}
#: Calls two keys all the time, and calls a key that is new every half minute; at a pace that a cluster on this machine
#: bears beside the start of all its pods.
KNOWN = replace(CALLER, key="f'known-{int(key[-1]) % 2}'", pause=0.25)
NEW = replace(CALLER, key="f'new-{int(time.time() / 30)}'", pause=0.25)


def up(stack: Stack, version: Version, *, refresh: bool = False) -> None:
    """Apply the program of a version, on the state that it left if it was there before.

    With `refresh`, that state gets what is there, as the page says. Nothing is taken away, and nothing is left to do.
    """
    project, kept = stack.project, stack.project.directory / f"{version.name}.json"
    project.take(version.tree, Path(version.python).parent)
    if kept.exists():
        project.must("stack", "import", "--stack", project.stack, "--file", str(kept))
    words, variables = (["--refresh"], dict.fromkeys(MUTABLE, "true")) if refresh else ([], {})
    assert taken_away(stack.must_up(*words, variables=variables)) == []
    stack.must_up("--expect-no-changes", variables=variables)
    project.must("stack", "export", "--stack", project.stack, "--file", str(kept))


def taken_away(done: CommandResult) -> list[str]:
    """Return the lines of an `up` about what it deleted or replaced."""
    return [line for line in done.out.splitlines() if " deleted" in line or " replaced" in line]


@dataclass
class DeclaredByPulumi(LivePool):
    """A pool by hand, of which a stack declares what is on the broker."""

    stack: Stack | None = None

    def declare(self, version: Version) -> None:
        assert self.stack is not None
        up(self.stack, version)
        addresses = self.stack.project.outputs()["addresses"]["core"]
        self.variables |= {
            "AMQP_URI": addresses["client"],
            "OSRDYNE_DAEMON_BROKER__AMQP_URI": addresses["daemon"],
            "OSRDYNE_DAEMON_BROKER__MANAGEMENT_URI": addresses["daemon-management"],
            "OSRDYNE_DAEMON_DRIVER__WORKER_AMQP_URI": addresses["worker"],
        }


@pytest.fixture
def pool(newest: Stack, tmp_path: Path) -> Iterator[LivePool]:
    with live_pool(Vhost(newest.broker, newest.vhost), tmp_path, WORKER, DeclaredByPulumi) as live:
        live.stack = newest
        live.pool = {"instance": newest.instance}
        yield live


@pytest.mark.parametrize("first", ["daemon", "workers"])
def test_a_live_pool_is_upgraded_and_downgraded_by_pulumi_and_every_call_is_answered(
    pool: LivePool, before: Version, after: Version, first: str
) -> None:
    check_all_answered(pool.go_there_and_back(before, after, first), before, after)


@dataclass
class LiveStack:
    """A pool on a cluster, of which program, daemons and workers are of one version or another."""

    stack: OnCluster
    images: dict[Version, str]
    folder: Path
    #: The program of the workers, which says which pod answers, and of which release.
    worker: str = ANSWER

    def up(self, program: Version, daemon: Version, workers: Version, *, refresh: bool = False) -> None:
        """Apply it, and wait until the workers answer."""
        worker = {"image": self.images[workers], "command": ["python", "-c", self.worker], "resources": SMALL}
        self.stack.values["workers"] = {"core": worker}
        self.stack.values["kubernetes"]["daemon"]["image"] = self.images[daemon]
        self.stack.configure()
        up(self.stack, program, refresh=refresh)
        self.stack.settled("core")
        images = {pod["spec"]["containers"][0]["image"] for pod in self.stack.daemons("core").values()}
        assert images == {self.images[daemon]}

    def variables(self) -> dict[str, str]:
        address = self.stack.project.outputs()["addresses"]["core"]["client"]
        return {"PATH": os.environ["PATH"], "AMQP_URI": address.replace(self.stack.cluster.gateway, "127.0.0.1")}

    def answered_by(self, name: str, release: str) -> Callable[[], bool]:
        """Whether the last answer to each key of a caller is of a release."""
        file = self.folder / f"{name}.jsonl"
        return lambda: all(last.endswith(release) for last in {key: text for key, text, _ in lines(file)}.values())


@pytest.fixture(scope="module")
def images(cluster: Cluster, before: Version, after: Version) -> dict[Version, str]:
    """The images of both versions, which the cluster has."""
    former = Recipe("osrdyne.invalid/before:test", "Dockerfile", (), before.tree, commit_before())
    for archive in archives(former):
        cluster.load_archive(archive)
    return {before: former.name, after: DAEMON.name}


@pytest.fixture
def live(fresh: OnCluster, images: dict[Version, str], tmp_path: Path) -> LiveStack:
    fresh.values["pools"] = [{"name": "core", "unbind_delay": 15, "stop_delay": 5}]
    fresh.values["kubernetes"]["daemon"]["resources"] = SMALL
    return LiveStack(fresh, images, tmp_path)


@pytest.mark.parametrize("first", ["daemon", "workers"])
def test_a_pool_on_a_cluster_is_upgraded_and_downgraded_by_pulumi_and_every_call_is_answered(
    live: LiveStack, before: Version, after: Version, first: str
) -> None:
    live.up(before, before, before)
    of_both = [(after, before), (before, after)]
    there, back = of_both if first == "daemon" else reversed(of_both)
    steps = [(after, *there), (after, after, after), (after, *back), (after, before, before), (before, before, before)]
    with ExitStack() as callers:

        def called(caller: Caller, version: Version, name: str) -> Answers:
            return callers.enter_context(caller.called(version, live.folder, live.variables(), name))

        known, new = called(KNOWN, before, "known"), called(NEW, after, "new")
        for program, daemon, workers in steps:
            live.up(program, daemon, workers)
            release = "after" if workers is after else "before"
            for name in ("known", "new"):
                until(live.answered_by(name, release), what="answers of the workers that were exchanged")

    assert max(seconds for called_ in (known, new) for *_, seconds in called_.lines) < LATEST_SECONDS
    # Each key had one worker of each kind, and the first one's successor: none was restarted without need
    kinds = {key: [answer.split()[1] for answer in seen] for key, seen in known.workers().items()}
    assert kinds == {key: ["before", "after", "before"] for key in kinds}
    assert len(kinds) == KEYS
    assert {answer.split()[-1] for _, answer, _ in new.lines} == {"before", "after"}
