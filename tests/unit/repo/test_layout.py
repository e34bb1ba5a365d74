"""How the code is laid out: few loose modules, packages that say what is in them, one name for one thing."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

import steps

PRODUCT = ("libs/protocol", "libs/amqp", "libs/client", "libs/worker", "daemon", "infra", "pipeline")
DAEMON = Path(steps.ROOT, "daemon/osrdyne")


def modules(folder: str) -> list[Path]:
    return [Path(steps.ROOT, name) for name in steps.tracked(".py") if name.startswith(f"{folder}/")]


def packages() -> list[Path]:
    """The packages of the libraries, the daemon, the Pulumi program and the pipeline."""
    within = [file for folder in PRODUCT for file in modules(folder)]
    return sorted({file.parent for file in within if file.name == "__init__.py"})


def test_at_most_fourteen_modules_are_loose_in_the_daemon() -> None:
    assert len([file for file in DAEMON.glob("*.py") if file.name != "__init__.py"]) <= 14


@pytest.mark.parametrize("package", [str(one.relative_to(steps.ROOT)) for one in packages()])
def test_a_package_names_its_modules_in_its_docstring(package: str) -> None:
    folder = Path(steps.ROOT, package)
    said = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    within = {file.stem for file in folder.glob("*.py")} | {file.parent.name for file in folder.glob("*/__init__.py")}

    assert {name for name in within - {"__init__"} if not re.search(rf"`(?:\w+\.)?{name}`", said)} == set()


def test_no_two_classes_of_the_product_have_one_name() -> None:
    found = defaultdict(set)
    for folder in PRODUCT:
        for file in modules(folder):
            for one in ast.parse(file.read_text()).body:
                if isinstance(one, ast.ClassDef) and not one.name.startswith("_"):
                    found[one.name].add(str(file.relative_to(steps.ROOT)))

    assert {name: files for name, files in found.items() if len(files) > 1} == {}
