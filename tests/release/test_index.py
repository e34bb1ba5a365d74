"""Each package alone, in a fresh environment that an index of our own and the registries fill, on each Python here.

tests/unit/release has the same without a registry, on the Python of the tests and on the newest.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import setup
import steps
import versions
from testbed.distributions import Environment
from tests.release.conftest import Index
from tests.unit.release.alone import FIRST
from tests.unit.release.test_installed_alone import FEWER_BYTES_THAN, FEWER_PACKAGES_THAN

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]


@pytest.mark.parametrize("package", FIRST)
def test_a_package_from_an_index_does_what_its_page_says(
    package: str, python: str, index: Index, empty: Callable[[str], Environment]
) -> None:
    made = empty(python)
    index.fill(made, package)

    FIRST[package].run(made)


def test_pip_installs_osrdyne_in_less_than_25_packages_and_40_megabytes(
    python: str, index: Index, tmp_path: Path
) -> None:
    subprocess.run([python, "-m", "venv", tmp_path], check=True)
    (folder,) = tmp_path.glob("lib/python*/site-packages")
    before = {*folder.rglob("*")}
    pip = [str(tmp_path / "bin/python"), "-m", "pip", "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "install", "--quiet", "--extra-index-url", index.address, f"osrdyne=={versions.current()}"], check=True
    )

    added = {*folder.rglob("*")} - before
    assert len([path for path in added if path.name.endswith(".dist-info")]) < FEWER_PACKAGES_THAN
    assert sum(path.stat().st_size for path in added if path.is_file()) < FEWER_BYTES_THAN
    FIRST["osrdyne"].run(Environment(tmp_path))


def test_every_package_can_be_built_from_its_sdist(index: Index, empty: Callable[[str], Environment]) -> None:
    made = empty(str(steps.BIN / "python"))
    ours = [folder.name for folder in setup.packages()]
    names = ["osrdyne" if name == "daemon" else f"osrdyne-{name}" for name in ours]
    index.fill(made, "osrdyne-jobs", *(f"--no-binary={name}" for name in names), *names, "--no-deps")

    listed = subprocess.run(
        [str(steps.BIN / "uv"), "pip", "list", "--python", made.program("python")],
        check=True,
        capture_output=True,
        text=True,
    )
    assert sorted(re.findall(r"^osrdyne\S*", listed.stdout, re.MULTILINE)) == sorted(names)
