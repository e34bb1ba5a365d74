"""requirements.lock installs the same on every machine, from whichever index that machine uses."""

import re
import tomllib
from pathlib import Path

import pytest

import steps
from testbed.pulumi import building

LOCK = Path(steps.ROOT, "requirements.lock").read_text()
PYPROJECTS = [name for name in steps.tracked("pyproject.toml") if name != "pyproject.toml"]


def normalized(requirement: str) -> str:
    """The name of a requirement as an index spells it: `flit_core>=3` is `flit-core`."""
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name is not None, requirement
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def pinned() -> dict[str, str]:
    """Each name of the lock with the lines that belong to it."""
    blocks = re.split(r"\n(?=\S)", LOCK)
    return {normalized(block): block for block in blocks if re.match(r"[A-Za-z0-9._-]+==", block)}


def project(pyproject: str) -> dict[str, list[str]]:
    """What a package's pyproject.toml asks for, at run time and to be built."""
    data = tomllib.loads(Path(steps.ROOT, pyproject).read_text())
    extras = data["project"].get("optional-dependencies", {})
    return {
        "run": data["project"].get("dependencies", []),
        "extras": [requirement for extra in extras.values() for requirement in extra],
        "build": data["build-system"]["requires"],
    }


def test_the_lock_names_no_address() -> None:
    assert not re.search(r"://|--(extra-)?index-url|--find-links|--trusted-host", LOCK)


def test_every_pinned_package_has_a_hash() -> None:
    assert len(pinned()) > 50
    assert [name for name, block in pinned().items() if "--hash=sha256:" not in block] == []


@pytest.mark.parametrize("pyproject", PYPROJECTS)
def test_the_lock_pins_what_a_package_asks_for(pyproject: str) -> None:
    asked = project(pyproject)
    ours = {normalized(Path(name).parent.name) for name in PYPROJECTS}
    ours |= {"osrdyne"} | {f"osrdyne-{Path(name).parent.name}" for name in PYPROJECTS}

    names = {normalized(requirement) for requirement in asked["run"] + asked["extras"] + asked["build"]} - ours
    # It has no wheels: lab/testbed/proton.txt pins it.
    names.discard("python-qpid-proton")

    assert names - set(pinned()) == set()


def test_the_lock_pins_what_requirements_in_asks_for() -> None:
    lines = Path(steps.ROOT, "requirements.in").read_text().splitlines()
    names = {normalized(line) for line in lines if line and not line.startswith("#")}

    assert names - set(pinned()) == set()


def test_the_protocol_brings_nothing_and_client_and_worker_only_pika() -> None:
    below = {"osrdyne-protocol", "osrdyne-runtime"}
    ours = {*below, "osrdyne-calls", "osrdyne-amqp"}

    assert project("packages/protocol/pyproject.toml")["run"] == []
    for package in ("runtime", "pool"):
        assert [normalized(r) for r in project(f"packages/{package}/pyproject.toml")["run"]] == ["osrdyne-protocol"]
    assert {normalized(r) for r in project("packages/calls/pyproject.toml")["run"]} == below
    assert {normalized(r) for r in project("packages/amqp/pyproject.toml")["run"]} == {*ours - {"osrdyne-amqp"}, "pika"}
    assert {normalized(r) for r in project("packages/client/pyproject.toml")["run"]} == ours
    assert {normalized(r) for r in project("packages/worker/pyproject.toml")["run"]} == ours


def brought(package: str, *extras: str) -> set[str]:
    """All that `pip install` of one of our packages asks for, over others of ours."""
    pyproject = "daemon" if package == "osrdyne" else f"packages/{package.removeprefix('osrdyne-')}"
    asked = tomllib.loads(Path(steps.ROOT, pyproject, "pyproject.toml").read_text())["project"]
    more = [requirement for extra in extras for requirement in asked["optional-dependencies"][extra]]
    names = {normalized(requirement) for requirement in asked.get("dependencies", []) + more}
    return names.union(*(brought(name) for name in names if name.startswith("osrdyne")))


def test_the_bus_and_a_worker_over_https_bring_no_pika() -> None:
    assert "pika" in brought("osrdyne-client")
    assert not {"pika", "redis"} & brought("osrdyne-bus", "command", "metrics", "proton")
    assert "pika" not in brought("osrdyne-relay", "client", "node", "s3", "worker")


def test_the_tests_build_the_pulumi_of_the_python_packages() -> None:
    for package, version in {"pulumi": building.VERSION, "pulumi-kubernetes": building.KUBERNETES}.items():
        assert pinned()[package].startswith(f"{package}=={version.removeprefix('v')} ")
