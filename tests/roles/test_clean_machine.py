"""`dev.yml` on a clean Debian 13: the Molecule scenario of playbooks/molecule/default, step by step."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed.docker import container_name, engine
from tests.roles import local_setup

PROJECT = Path(__file__).parents[2]
Molecule = Callable[..., str]


@pytest.fixture(scope="module")
def molecule(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Molecule]:
    """Runs a step of the scenario on a machine of this test run; the machine ends with it."""
    machine = container_name("clean")
    with engine() as docker:
        environment = docker.environment | {
            "PATH": f"{Path(sys.executable).parent}:{docker.environment['PATH']}",
            "OSRDYNE_MACHINE_IMAGE": docker.machine("trixie"),
            "OSRDYNE_MACHINE_NAME": machine,
            "MOLECULE_GLOB": "playbooks/molecule/*/molecule.yml",
            "MOLECULE_EPHEMERAL_DIRECTORY": str(tmp_path_factory.mktemp("molecule")),
            "ANSIBLE_NOCOLOR": "1",
        }

        def run(step: str, *arguments: str) -> str:
            done = local_setup.run(["molecule", step, *arguments], env=environment, timeout=900)
            text = re.sub(r"\x1b\[[\d;]*m", "", done.stdout)
            assert done.returncode == 0, f"molecule {step} failed:\n{text[-6000:]}"
            return text

        try:
            run("create")  # and it prepares the machine
            yield run
        finally:
            # `molecule destroy` does no more, in ten seconds.
            docker("rm", "--force", machine)


def changed(output: str) -> list[str]:
    """What the recap of each machine says was changed."""
    return re.findall(r"changed=(\d+)", output)


@pytest.mark.full
@pytest.mark.xdist_group("machines")
@pytest.mark.timeout(1800)
def test_a_clean_machine_comes_to_a_running_pool_and_a_second_run_changes_nothing(molecule: Molecule) -> None:
    # When the playbook is rehearsed on a machine that has Python and nothing else
    assert changed(molecule("converge", "--", "--check"))[-1] != "0"
    # Then it says what it would change, and when it runs there is all of it to do
    assert changed(molecule("converge"))[-1] != "0"
    # Then the pool runs, with the distribution's broker, and answers
    molecule("verify")
    # And another run has nothing left to do
    molecule("idempotence")
