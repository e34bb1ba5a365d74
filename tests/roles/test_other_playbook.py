"""A playbook outside this project uses a single role, with the `ansible.cfg` that the role's README shows."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.roles import local_setup

PROJECT = Path(__file__).parents[2]
ROLES = sorted(path.name for path in (PROJECT / "roles").iterdir())
MODULES = sorted(path.stem for path in (PROJECT / "plugins/modules").glob("*.py"))
PLAYBOOK = """
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.import_role: {name: rabbitmq, tasks_from: named}
      vars:
        rabbitmq_uri: amqp://ad%3Amin:word@127.0.0.1:1/trains
        rabbitmq_why: it is named
"""


def run(directory: Path, configuration: str) -> str:
    """Return what PLAYBOOK prints. A filter of the role finds that the administrator in it cannot log in."""
    (directory / "ansible.cfg").write_text(configuration)
    (directory / "play.yml").write_text(PLAYBOOK)
    command = [f"{Path(sys.executable).parent}/ansible-playbook", "play.yml", "-c", "local"]
    variables = {"ANSIBLE_NOCOLOR": "1", "ANSIBLE_HOME": str(directory / "home"), "LC_ALL": "C.UTF-8"}
    done = local_setup.run(command, cwd=directory, env={**os.environ, **variables}, timeout=120)
    assert done.returncode
    return done.stdout


def configuration(role: str) -> str:
    page = (PROJECT / f"roles/{role}/README.md").read_text()
    [block] = re.findall(r"^```ini\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    return str(block).replace("OSRDYNE", str(PROJECT))


def test_the_pages_of_all_roles_show_the_same_ansible_cfg() -> None:
    assert len({configuration(role) for role in ROLES}) == 1


@pytest.mark.fast
def test_a_role_finds_its_filters_by_what_its_page_says(tmp_path: Path) -> None:
    output = run(tmp_path, configuration("rabbitmq"))

    assert "holds a colon" in output, output


@pytest.mark.fast
def test_ansible_finds_the_modules_by_what_the_page_says(tmp_path: Path) -> None:
    (tmp_path / "ansible.cfg").write_text(configuration("topology"))
    done = subprocess.run(
        [f"{Path(sys.executable).parent}/ansible-doc", "--json", *MODULES],
        cwd=tmp_path,
        env={**os.environ, "ANSIBLE_HOME": str(tmp_path / "home"), "LC_ALL": "C.UTF-8"},
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert json.loads(done.stdout).keys() == {*MODULES}
