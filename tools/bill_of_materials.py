"""What the packages of a release consist of, as a document of CycloneDX 1.6: ours, and what the lock pins for them.

The lock says which package another one is there for. So what a package of others needs is what any of its extras needs.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import cyclonedx
from cyclonedx import of_pypi

#: A pin, with the lines that belong to it: hashes, and comments that say what it is there for.
_PIN = re.compile(r"^([\w.-]+)(?:\[[^]]*\])?==([^ ;\\]+).*\n((?:    .*\n)*)", re.MULTILINE)
_LICENCE = [{"license": {"id": "MIT"}}]


def document(tree: Path, packages: Path, version: str, made: dt.datetime) -> dict[str, Any]:
    """Return the document about the wheels in a folder, which were made from a tree at this version and time."""
    pins, needs = _locked((tree / "requirements.lock").read_text())
    ours = {project["name"]: project for project in _projects(tree)}
    for name, project in ours.items():
        extras = project.get("optional-dependencies", {}).values()
        asked = map(Requirement, chain(project["dependencies"], *extras))
        needs[name] = {canonicalize_name(requirement.name) for requirement in asked}
    others = sorted(_closure(ours, needs) - ours.keys())
    refs = {name: [of_pypi(name, version)] for name in ours}
    refs |= {name: [of_pypi(name, pin) for pin in sorted(pins[name])] or [of_pypi(name)] for name in others}
    components = [_of_ours(project, packages, version) for _, project in sorted(ours.items())]
    components += [
        cyclonedx.library(name, pin, of_pypi(name, pin)) for name in others for pin in sorted(pins[name]) or [""]
    ]
    dependencies = [
        {"ref": "release", "dependsOn": [of_pypi(name, version) for name in sorted(ours)]},
        *(
            {"ref": ref, "dependsOn": sorted(chain(*(refs.get(needed, []) for needed in needs[name])))}
            for name in [*sorted(ours), *others]
            for ref in refs[name]
        ),
    ]
    root = {"type": "application", "bom-ref": "release", "name": "osrdyne", "version": version, "licenses": _LICENCE}
    return cyclonedx.document(root, components, dependencies, f"{made:%Y-%m-%dT%H:%M:%SZ}")


def _projects(tree: Path) -> list[dict[str, Any]]:
    found = [tomllib.loads(file.read_text()).get("project") for file in tree.glob("**/pyproject.toml")]
    return [project for project in found if project]


def _locked(lock: str) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Return the versions of each package, and what each needs."""
    pins, needs = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    for name, version, rest in _PIN.findall(lock):
        pins[canonicalize_name(name)].add(version)
        for parent in re.findall(r"#(?: via)? +([\w.-]+)$", rest, re.MULTILINE):
            needs[canonicalize_name(parent)].add(canonicalize_name(name))
    return pins, needs


def _closure(names: Iterable[str], needs: dict[str, set[str]]) -> set[str]:
    found, waiting = set[str](), [*names]
    while waiting:
        name = waiting.pop()
        waiting += needs.get(name, set()) - found
        found.add(name)
    return found


def _of_ours(project: dict[str, Any], packages: Path, version: str) -> dict[str, Any]:
    (wheel,) = packages.glob(f"{project['name'].replace('-', '_')}-{version}-*.whl")
    return cyclonedx.library(
        project["name"],
        version,
        of_pypi(project["name"], version),
        description=project["description"],
        licenses=_LICENCE,
        hashes=[{"alg": "SHA-256", "content": hashlib.sha256(wheel.read_bytes()).hexdigest()}],
    )
