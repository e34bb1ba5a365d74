"""All packages have one version, which stands in one place, and say the same of themselves."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

import setup as environment
import steps
import versions

PACKAGES = {str(folder.relative_to(steps.ROOT)): folder for folder in environment.packages()}
#: What is the same in the metadata of all.
COMMON = ("version", "readme", "requires-python", "license", "authors", "classifiers")


def metadata(folder: Path) -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return project


def siblings(folder: Path) -> list[Requirement]:
    """What a package asks for of ours, in any of its extras."""
    project = metadata(folder)
    extras = project.get("optional-dependencies", {}).values()
    asked = map(Requirement, [*project["dependencies"], *(requirement for extra in extras for requirement in extra)])
    return [requirement for requirement in asked if requirement.name.startswith("osrdyne")]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_has_the_version_of_all_and_takes_siblings_of_that_version_only(package: str) -> None:
    folder = PACKAGES[package]

    assert metadata(folder)["version"] == versions.current()
    assert {str(sibling.specifier) for sibling in siblings(folder)} <= {f"=={versions.current()}"}


def test_some_packages_take_siblings() -> None:
    assert sum(map(len, map(siblings, PACKAGES.values()))) > 40


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_says_what_all_say_and_has_the_licence_and_a_page(package: str) -> None:
    folder = PACKAGES[package]
    first = metadata(PACKAGES["daemon"])

    assert {name: metadata(folder).get(name) for name in COMMON} == {name: first[name] for name in COMMON}
    assert (folder / "LICENSE").read_text() == Path(steps.ROOT, "LICENSE").read_text()
    assert (folder / "README.md").read_text().startswith(f"# {metadata(folder)['name']}\n")


def test_another_version_is_written_wherever_it_stands(tmp_path: Path) -> None:
    for name in steps.tracked():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(steps.ROOT / name, tmp_path / name)

    changed = versions.write("98.7.6", tmp_path)

    assert versions.current(tmp_path) == "98.7.6"
    assert {f"{package}/pyproject.toml" for package in PACKAGES} | {"pyproject.toml", "Dockerfile"} <= {*changed}
    for package in PACKAGES:
        assert metadata(tmp_path / package)["version"] == "98.7.6"
        assert {str(sibling.specifier) for sibling in siblings(tmp_path / package)} <= {"==98.7.6"}
    assert versions.write("98.7.6", tmp_path) == []
    # Nothing else has changed, and everything can be changed back.
    assert sorted(versions.write(versions.current(), tmp_path)) == sorted(changed)
    assert [name for name in changed if (tmp_path / name).read_bytes() != (steps.ROOT / name).read_bytes()] == []


@pytest.mark.parametrize("wrong", ["1.2", "v1.2.3", "1.2.3.dev4", "1.02.3", "1.2.3\n", ""])
def test_what_is_not_a_version_is_not_written(wrong: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="three numbers, such as"):
        versions.write(wrong, tmp_path)
