"""A stack comes from the release before to this one by Pulumi, and back, while its pool is called.

It declares on the broker what the programs of a pool stand on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from testbed.pulumi.stack import Done
from tests.conftest import Vhost
from tests.infra.conftest import Stack, make_stack, newest
from tests.release.live_pool import WORKER, LivePool, check_all_answered, live_pool
from tests.release.two_versions import Version

__all__ = ["make_stack", "newest"]
pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]


def up(stack: Stack, version: Version) -> None:
    """Apply the program of a version, on the state that it left if it was there before.

    Nothing is taken away, and nothing is left to do.
    """
    project, kept = stack.project, stack.project.directory / f"{version.name}.json"
    project.take(version.tree, Path(version.python).parent)
    if kept.exists():
        project.must("stack", "import", "--stack", project.stack, "--file", str(kept))
    assert taken_away(stack.must_up()) == []
    stack.must_up("--expect-no-changes")
    project.must("stack", "export", "--stack", project.stack, "--file", str(kept))


def taken_away(done: Done) -> list[str]:
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
