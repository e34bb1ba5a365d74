"""The README of each role has every variable with its true default, and its licence is that of the project."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

import steps

ROLES = sorted(path.name for path in Path(steps.ROOT, "roles").iterdir())


def load(path: str) -> Any:
    return yaml.safe_load(Path(steps.ROOT, path).read_text())


def shown(default: str) -> Any:
    """The default in a cell of the table; a link stands for one that is too long."""
    return "a link" if default.startswith("[") else yaml.safe_load(quoted(default.strip("`")))


def quoted(text: str) -> str:
    """A template as YAML, which would take its braces for a mapping."""
    return f"'{text}'" if text.startswith("{{") else text


@pytest.mark.parametrize("role", ROLES)
def test_the_page_of_a_role_names_each_variable_with_its_default(role: str) -> None:
    page = Path(steps.ROOT, f"roles/{role}/README.md").read_text()
    table = dict(re.findall(r"^\| `(\w+)` \| (\[.*?\)|`.*?`) \|", page, re.MULTILINE))
    defaults = load(f"roles/{role}/defaults/main.yml")

    assert list(table) == list(defaults)
    assert list(table) == list(load(f"roles/{role}/meta/argument_specs.yml")["argument_specs"]["main"]["options"])
    different = {name for name in table if shown(table[name]) not in (defaults[name], "a link")}
    assert different == set()


@pytest.mark.parametrize("role", ROLES)
def test_what_a_role_says_of_its_arguments_has_each_default_that_no_other_variable_decides(role: str) -> None:
    options = load(f"roles/{role}/meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    defaults = load(f"roles/{role}/defaults/main.yml")

    constant = {name: default for name, default in defaults.items() if "{{" not in str(default)}
    said = {name: option["default"] for name, option in options.items() if "default" in option}
    assert said == {name: constant[name] for name in constant if not options[name].get("required")}


@pytest.mark.parametrize("role", ROLES)
def test_the_page_of_a_role_is_a_screen_long(role: str) -> None:
    assert len(Path(steps.ROOT, f"roles/{role}/README.md").read_text().splitlines()) <= 60


def test_everything_has_the_licence_of_the_project() -> None:
    assert Path(steps.ROOT, "LICENSE").read_text().startswith("MIT License\n\nCopyright (c) 2026 The osrdyne authors\n")
    packages = [name for name in steps.tracked("pyproject.toml") if "/" in name]
    stated = {name: tomllib.loads(Path(steps.ROOT, name).read_text())["project"].get("license") for name in packages}
    stated |= {role: load(f"roles/{role}/meta/main.yml")["galaxy_info"]["license"] for role in ROLES}
    assert set(stated.values()) == {"MIT"}, stated
