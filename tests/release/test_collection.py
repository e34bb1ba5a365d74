"""The Ansible collection under `ansible-test sanity`, and on a machine that nothing of ours was on before.

tests/unit/release has what needs neither a network nor a machine.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import collection
import steps
from testbed import package_sources
from testbed.docker import Docker, container_name, engine
from tests.roles import local_setup
from tests.unit.release.test_collection import PAGE

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]
#: What ansible-test downloads, where it cannot: the pip that Python brings installs what it is asked for.
PIP = """
import subprocess, sys
subprocess.check_call([sys.executable, "-m", "ensurepip"])
words = [word for word in sys.argv[1:] if not word.startswith("--no-")]
sys.exit(subprocess.call([sys.executable, "-m", "pip", "install", *words]))
"""
WORKER = Path(steps.ROOT, "daemon/osrdyne/commands/new_pool/worker.py")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the collection is, as ansible-test wants it, in a home from which pip reaches packages as it does here."""
    found = tmp_path / "ansible_collections/osrdyne/pool"
    found.mkdir(parents=True)
    file = collection.build(steps.ROOT, tmp_path, 0)
    subprocess.run(["tar", "--extract", "--gzip", "--file", file, "--directory", found], check=True)
    package_sources.of_pip(tmp_path)
    (tmp_path / "etc").rename(tmp_path / ".pip")
    if missing := re.search(r"saved to: (\S+)", sanity(found, "--test=yamllint").stdout):
        Path(missing[1]).write_text(PIP)
    return found


def sanity(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    version = ".".join(map(str, sys.version_info[:2]))
    home = str(place.parents[2])
    command = ["ansible-test", "sanity", "--color=no", f"--python={version}", *words]
    return local_setup.run(command, cwd=place, env=steps.environment(HOME=home, LC_ALL="C.UTF-8"), timeout=1200)


def test_ansible_test_finds_nothing(place: Path) -> None:
    # pylint has the rules of Ansible's own code. They are for plugins and roles; ruff looks at the packages.
    for words in (["--skip-test=pylint"], ["--test=pylint", "plugins/", "roles/"]):
        done = sanity(place, *words)
        assert done.returncode == 0, done.stdout[-6000:]


@pytest.fixture
def debian() -> Iterator[tuple[Docker, str]]:
    """A Debian 13 without anything of ours, and the engine that it runs on."""
    name = container_name("collection")
    with engine() as docker:
        docker("run", "--detach", "--init", f"--name={name}", docker.machine("trixie"), "sleep", "infinity")
        try:
            yield docker, name
        finally:
            docker("rm", "--force", "--volumes", name)


@pytest.mark.xdist_group("machines")
def test_the_four_commands_of_the_page_bring_an_empty_machine_to_its_first_answer(
    debian: tuple[Docker, str], tmp_path: Path
) -> None:
    docker, name = debian
    [play] = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    [commands] = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    for path in steps.tracked():
        (tmp_path / "osrdyne" / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(steps.ROOT / path, tmp_path / "osrdyne" / path)
    (tmp_path / "pool.yml").write_text(play)
    shutil.copy(WORKER, tmp_path)
    for file in tmp_path.iterdir():
        docker("cp", str(file), f"{name}:/srv/{file.name}")
    # Given what the page asks for, a virtual environment, a checkout and a worker
    run(docker, name, "apt-get -qq update; apt-get -qq install -y python3-venv; python3 -m venv /opt/ansible")
    # When a person types its commands, then the last one prints the worker's answer
    assert run(docker, name, commands).splitlines()[-1] == "LAX answers hello"
    # And the playbook has nothing left to do
    assert local_setup.changed(run(docker, name, "ansible-playbook pool.yml")) == 0


def run(docker: Docker, name: str, script: str) -> str:
    """Run commands of a shell on the machine, with the virtual environment; return what they print."""
    within = f"set -e; cd /srv; export LC_ALL=C.UTF-8 PATH=/opt/ansible/bin:$PATH; {script}"
    done = local_setup.run(["docker", "exec", name, "sh", "-c", within], env=docker.environment, timeout=900)
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout
