"""`pulumi up` of the stack `dev`: of nothing, and again when all is there, with Pulumi's own start in it.

Compared with the time that is allowed. What a plain `pulumi up --yes` does is measured, a preview included.
"""

from __future__ import annotations

import secrets
import tempfile
from pathlib import Path

from benchmarks.ratios import Row, Target, compared
from benchmarks.rig import Rig
from testbed.pulumi.building import programs
from testbed.pulumi.stack import Project

#: Seconds.
ALLOWED_SECONDS = 15.0
ROUNDS, QUICK_ROUNDS = 5, 1


def measure(rig: Rig) -> list[Row]:
    """Return two rows: the first `up`, and one that finds nothing to do. Builds Pulumi where it is not built yet."""
    rig.progress("Pulumi is built, if it is not there yet")
    programs()
    first, second = [], []
    for number in range(QUICK_ROUNDS if rig.quick else ROUNDS):
        rig.progress(f"pulumi up, round {number + 1}")
        one, other = _round(rig)
        first.append(one)
        second.append(other)
    allowed = [ALLOWED_SECONDS] * len(first)
    in_time = Target(1, at_most=True)
    return [
        compared("pulumi up of dev, from nothing", "s", first, allowed, "what is allowed", in_time),
        compared("pulumi up of dev, nothing to do", "s", second, allowed, "what is allowed", in_time),
    ]


def _round(rig: Rig) -> tuple[float, float]:
    mark = secrets.token_hex(4)
    with tempfile.TemporaryDirectory(prefix="osrdyne-bench-") as folder:
        project = Project(Path(folder), passphrase=secrets.token_hex(8))
        broker = {
            "management": rig.broker.management_url,
            "amqp": f"amqp://127.0.0.1:{rig.broker.amqp_port}",
            "admin": rig.broker.admin,
        }
        values = {"broker": broker, "vhost": f"bench-{mark}", "instance": mark, "pools": [{"name": "core"}]}
        project.configure(values, {"admin_password": rig.broker.admin_password})
        up = ("up", "--yes", "--stack", "dev")
        try:
            return project.must(*up).seconds, project.must(*up, "--expect-no-changes").seconds
        finally:
            project.must("destroy", "--yes", "--skip-preview", "--stack", "dev")
