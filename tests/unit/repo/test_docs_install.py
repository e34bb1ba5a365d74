"""docs/start/install.md names every package of the system that the code installs, and no other."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

import steps

PAGE = Path(steps.ROOT, "docs/start/install.md")
#: Functions that install, as they are called.
INSTALL = {"apt.install", "system_packages.command"}
#: Modules of Ansible that install.
TASKS = {"ansible.builtin.apt", "osrdyne.pool.osrdyne_packages"}
#: Where a task is given the name by a variable.
VARIABLES = {"{{ relay_redis }}": ["redis-server", "valkey-server"]}


def by_python() -> Iterator[str]:
    """The packages of calls, whose arguments may be constants of their modules."""
    for name in steps.tracked(".py"):
        text = Path(steps.ROOT, name).read_text()
        if name.startswith("tests/") or not any(function in text for function in INSTALL):
            continue
        module = importlib.import_module(Path(name).stem if name.startswith("tools/") else name[:-3].replace("/", "."))
        for call in ast.walk(ast.parse(text)):
            if isinstance(call, ast.Call) and ast.unparse(call.func) in INSTALL:
                for argument in call.args:
                    yield from names_of(argument, vars(module))


def names_of(argument: ast.expr, variables: dict[str, Any]) -> list[str]:
    """The packages of an argument: a text, or a constant of the module, or a part of one."""
    match argument:
        case ast.Constant(str(text)):
            return [text]
        case ast.Name(name):
            return [variables[name]]
        case ast.Starred(ast.Name(name)) | ast.Starred(ast.Call(args=[ast.Name(name)])):
            return [*variables[name]]
        case ast.Subscript(ast.Name(name), ast.Constant(key)):
            return [variables[name][key]]
    raise AssertionError(ast.unparse(argument))


def by_ansible() -> Iterator[str]:
    """The packages of tasks."""
    for name in steps.tracked(".yml"):
        if name.startswith(("roles/", "playbooks/")):
            yield from of_tasks(yaml.safe_load(Path(steps.ROOT, name).read_text()))


def of_tasks(document: Any) -> Iterator[str]:
    """The names that tasks install, at any depth of a document."""
    for part in document if isinstance(document, list) else []:
        for key, value in part.items() if isinstance(part, dict) else []:
            if key in TASKS and isinstance(value, dict):
                names = value.get("name", [])
                for name in [names] if isinstance(names, str) else names:
                    yield from VARIABLES.get(name, [name])
            yield from of_tasks(value)


def by_rootfs() -> list[str]:
    """Those of the program that makes root file systems, which stands alone."""
    text = Path(steps.ROOT, "roles/rabbitmq/files/rabbitmq_rootfs/rootfs.py").read_text()
    [found] = re.findall(r"wanted = (\[.*\])", text)
    names: list[str] = ast.literal_eval(found)
    return names


def documented() -> set[str]:
    """The packages in the first column of the table."""
    table = PAGE.read_text().partition("| packages |")[2].partition("\n\n")[0]
    return {name for row in table.splitlines()[2:] for name in re.findall(r"`([^`]+)`", row.split("|")[1])}


def test_the_page_names_every_package_that_is_installed_and_no_other() -> None:
    installed = {*by_python(), *by_ansible(), *by_rootfs()}

    # From each of the ways.
    assert {"redis-server", "python3-venv", "fonts-dejavu-core", "rabbitmq-server", "debootstrap"} <= installed
    assert documented() == installed


def test_every_target_of_the_page_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", Path(steps.ROOT, "Makefile").read_text(), re.MULTILINE))

    assert set(re.findall(r"`make ([a-z-]+)", PAGE.read_text())) <= targets
