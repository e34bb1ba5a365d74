"""Every block of commands in docs/environments.md does what the page says, in the order of the page."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import steps
from tests.engines.broker import Broker
from tests.engines.pulumi.stack import Project
from tests.infra.conftest import Stack

PAGE = Path(steps.ROOT, "docs/environments.md").read_text()
BLOCKS = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
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


class Shell:
    """Runs blocks one after the other, each in a shell that has the variables of those before."""

    def __init__(self, project: Project, broker: Broker, replacements: dict[str, str]) -> None:
        self._directory, self._replacements = project.directory, replacements
        own = project.environment()
        self._variables = {name: own[name] for name in ("PATH", "HOME", "PULUMI_SKIP_UPDATE_CHECK")}

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
    assert len(BLOCKS) == len(TELLING)
    assert [telling for telling, block in zip(TELLING, BLOCKS, strict=True) if telling not in block] == []


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
    file = project.directory / "Pulumi.dev.yaml"
    text = (
        file.read_text().replace("osrdyne-dev", stack.vhost).replace("instance: dev", f"instance: '{stack.instance}'")
    )
    file.write_text(text)
    shell = Shell(
        project,
        broker,
        {
            "http://127.0.0.1:15672": broker.management_url,
            "amqp://127.0.0.1:5672": f"amqp://127.0.0.1:{broker.amqp_port}",
        },
    )
    management = broker.management
    pages = iter(BLOCKS)

    for _ in range(3):
        shell.run(next(pages))
    assert len(stack.users()) == 5
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
    assert len(stack.users()) == 10
    shell.run(next(pages))
    assert len(stack.users()) == 5

    said = shell.run(next(pages))
    assert "replace" not in said

    shell.run(next(pages))
    assert stack.users() == set()
    assert stack.vhost not in stack.vhosts()
    assert list(pages) == []
