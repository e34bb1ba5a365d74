"""docs/howto/pulumi-components.md: four commands lead from a broker and a cluster to the first answer."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import versions
from testbed.distributions import Environment
from tests.broker.test_readme import blocks
from tests.infra.built_images import AIRPORTS, DAEMON
from tests.infra.clustered import OnCluster
from tests.infra.conftest import cluster, fresh
from tests.infra.test_components import PAGE, OwnProject, programs
from tests.release.conftest import Index

__all__ = ["cluster", "fresh"]
# It may have to wait for the cluster and the images.
pytestmark = [pytest.mark.full, pytest.mark.xdist_group("cluster"), pytest.mark.timeout(1800)]

(COMMANDS,) = blocks(PAGE.read_text(), "sh")


def test_the_commands_of_the_page_lead_to_an_answer_and_a_second_up_changes_nothing(
    fresh: OnCluster, index: Index, empty: Callable[[str], Environment], tmp_path: Path
) -> None:
    broker, gateway = fresh.broker, fresh.cluster.gateway
    made = empty(sys.executable)
    (tmp_path / "own").mkdir()
    project = OwnProject(
        tmp_path / "own",
        passphrase="phrase",
        stack="trial",
        python=Path(made.program("python")).parent,
        variables={"KUBECONFIG": str(fresh.cluster.kubeconfig)},
    )
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
    (project.directory / "admin.password").write_text(f"{broker.admin_password}\n")
    pip, *others = COMMANDS.splitlines()
    assert len(others) <= 3

    # From an index comes what is named, with the versions that the lock pins. Pulumi asks pip what there is.
    for package in ("pip", *pip.removeprefix("pip install ").split()):
        index.fill(made, package)
    said = ""
    for command in others:
        done = subprocess.run(
            ["bash", "-e", "-c", command],
            cwd=project.directory,
            env=project.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        said = done.stdout
        assert done.returncode == 0, done.stdout + done.stderr

    assert json.loads(said)["airport"] == "LAX"
    up = ("--yes", "--skip-preview", "--stack", project.stack)
    project.must("up", *up, "--expect-no-changes")
    assert broker.admin_password not in project.must("stack", "export", "--stack", project.stack).out
    project.must("destroy", *up)
    assert fresh.namespaces() == fresh.users() == set()
