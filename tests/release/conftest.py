"""An index with our packages, and environments that are filled from it and from the registries of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from flit_core.sdist import SdistBuilder  # type: ignore[import-untyped]

import setup
import steps
from testbed import package_index
from testbed.distributions import Environment, Wheels
from tests.release.two_versions import Version, install, tree_before

#: What osrdyne runs on.
PYTHONS = ("3.11", "3.12", "3.13")
#: What is of two versions: programs of a relay, of jobs, and of Pulumi, which asks pip what there is.
ADDED = ("osrdyne-relay[client,node,worker]", "osrdyne-jobs[postgresql]", "osrdyne-infra", "pip")


@dataclass(frozen=True)
class Index:
    """The index of our packages. What others made is what the lock pins, from where this machine has packages from."""

    address: str

    def fill(self, made: Environment, package: str, *options: str) -> None:
        """Install a package into an environment."""
        where = ["--index", self.address, "--constraint", str(setup.LOCK), "--python", made.program("python")]
        command = [str(steps.BIN / "uv"), "pip", "install", "--quiet", *where, *options, package]
        subprocess.run(command, check=True, env=steps.environment(**setup.pip_settings()))


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    files = tmp_path_factory.mktemp("files")
    Wheels.build(files)
    for project in setup.packages():
        SdistBuilder.from_ini_path(project / "pyproject.toml").build(files)
    with package_index.serve(files, tmp_path_factory.mktemp("index")) as address:
        yield Index(address)


@pytest.fixture(scope="session")
def before(tmp_path_factory: pytest.TempPathFactory) -> Version:
    """The newest release that is not this one, of its own commit."""
    place = tmp_path_factory.mktemp("before")
    (place / "tree").mkdir()
    return install(tree_before(place / "tree"), place / "before", "osrdyne", "osrdyne-worker", *ADDED)


@pytest.fixture(scope="session")
def after(tmp_path_factory: pytest.TempPathFactory) -> Version:
    """What is there now."""
    return install(steps.ROOT, tmp_path_factory.mktemp("after") / "after", "osrdyne[status]", *ADDED)


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Callable[[str], Environment]]:
    """Make environments without a package, of a Python; they are large, and not kept."""

    def make(python: str) -> Environment:
        command = [str(steps.BIN / "uv"), "venv", "--quiet", "--python", python, str(tmp_path / "environment")]
        subprocess.run(command, check=True)
        return Environment(tmp_path / "environment")

    yield make
    shutil.rmtree(tmp_path / "environment", ignore_errors=True)


def pythons() -> dict[str, str]:
    """The Pythons of this machine on which osrdyne runs, by their versions; that of the tests is one."""
    found = {".".join(map(str, sys.version_info[:2])): sys.executable}
    # A program of pyenv's that stands for a version which is not chosen does nothing, and uv looks no further.
    made_by_pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/*/bin")
    path = os.pathsep.join([*map(str, made_by_pyenv), os.environ["PATH"]])
    for version in PYTHONS:
        find = [str(steps.BIN / "uv"), "python", "find", "--no-python-downloads", "--system", version]
        done = subprocess.run(find, capture_output=True, text=True, check=False, env={**os.environ, "PATH": path})
        if done.returncode == 0:
            found.setdefault(version, done.stdout.strip())
    return found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that asks for a Python on each that there is."""
    if "python" in metafunc.fixturenames:
        found = pythons()
        missing = [version for version in PYTHONS if version not in found]
        skipped = [pytest.mark.skip(reason="this machine does not have this Python")]
        given = [pytest.param(path, id=version) for version, path in found.items()]
        given += [pytest.param("", id=version, marks=skipped) for version in missing]
        metafunc.parametrize("python", given)
