"""A package that is installed without the daemon brings the program `osrdyne`, with its own commands and no others.

Its wheel and those of our packages that it needs are built from here. What others made is linked from the environment
of the tests: all that the wheels ask for, and no more. So nothing of the network is needed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from flit_core.wheel import make_wheel_in  # type: ignore[import-untyped]
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import steps

#: What is installed -> a command of it, which needs no engine.
INSTALLED = {
    "osrdyne-bus[command]": ("bus", "ping", "--broker", "amqp://127.0.0.1:1"),
    "osrdyne-jobs": ("jobs", "list"),
    "osrdyne-relay[node]": ("relay", "token"),
    "osrdyne-pipeline": ("pipeline", "tables", "--pool", "core", "--lake", "/nowhere"),
}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheels of our packages, by the name of the distribution."""
    folder = tmp_path_factory.mktemp("wheels")
    projects = [Path(steps.ROOT, name) for name in steps.tracked("pyproject.toml") if "/" in name]
    built = [make_wheel_in(project, folder).file for project in projects]
    return {canonicalize_name(file.name.split("-")[0]): file for file in built}


def needed(root: str, wheels: dict[str, Path]) -> set[str]:
    """The names of all that a package needs with its extras, itself included."""

    def asked(name: str) -> list[str]:
        if (wheel := wheels.get(canonicalize_name(name))) is None:
            return metadata.requires(name) or []
        (described,) = (one for one in zipfile.Path(wheel).iterdir() if one.name.endswith(".dist-info"))
        return metadata.PathDistribution(described).requires or []

    waiting, seen = [Requirement(root)], set[tuple[str, str]]()
    while waiting:
        one = waiting.pop()
        for extra in {"", *one.extras} - {extra for name, extra in seen if name == one.name}:
            seen.add((one.name, extra))
            each = map(Requirement, asked(one.name))
            waiting += [more for more in each if more.marker is None or more.marker.evaluate({"extra": extra})]
    return {canonicalize_name(name) for name, _ in seen}


def link(name: str, place: Path) -> None:
    """Put a package of others, from the environment of the tests, into another one."""
    for file in metadata.files(name) or ():
        top = file.parts[0]
        if top != ".." and not (place / top).exists():
            (place / top).symlink_to(Path(str(metadata.distribution(name).locate_file(top))))


@pytest.mark.parametrize("package", INSTALLED)
def test_a_package_that_is_installed_alone_has_the_program_with_its_commands(
    package: str, wheels: dict[str, Path], tmp_path: Path
) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path], check=True)
    names = needed(package, wheels)
    ours = [str(wheels[name]) for name in sorted(names) if name in wheels]
    offline = [str(steps.BIN / "uv"), "pip", "install", "--quiet", "--offline", "--no-index", "--no-deps"]
    subprocess.run([*offline, "--python", str(tmp_path / "bin/python"), *ours], check=True)
    (place,) = tmp_path.glob("lib/python*/site-packages")
    for name in names - set(wheels):
        link(name, place)

    def osrdyne(*words: str) -> subprocess.CompletedProcess[str]:
        program = [str(tmp_path / "bin/osrdyne"), *words]
        return subprocess.run(program, capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin"})

    group, *_ = INSTALLED[package]
    assert "osrdyne" not in names
    listed = re.findall(r"^  ([a-z]+)  ", osrdyne("--help").stdout.partition("Commands:\n")[2], re.MULTILINE)
    assert listed == [group]
    assert osrdyne("--version").stdout.startswith("osrdyne ")
    assert osrdyne(group, "--help").returncode == 0
    done = osrdyne(*INSTALLED[package])
    assert "cannot be loaded" not in done.stderr
    assert done.returncode == (0 if group == "relay" else 2), done
