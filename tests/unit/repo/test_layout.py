"""How the code is laid out: few loose modules, packages that say what is in them, one name for one thing."""

from __future__ import annotations

import ast
import re
import subprocess
import textwrap
from collections import defaultdict
from pathlib import Path

import pytest

import steps

PRODUCT = (
    "packages",
    "daemon",
    "infra",
)
#: What users run, of which a bound is meant: a bound on one part only moves code into the next.
COUNTED = (*PRODUCT, "plugins", "roles")
#: Statements of all that, at most.
MOST_STATEMENTS = 36_608
#: Its models have the names of what they show, which an OpenAPI description shows, too.
SHOWS = "packages/jobs/osrdyne_jobs/http/models.py"
#: What a handler gets and what a caller of the relay sends; a node, and what a Pulumi program declares: all are what
#: users write, in programs of their own.
OF_USERS = {"Relay", "Request"}


def modules(folder: str) -> list[Path]:
    return [Path(steps.ROOT, name) for name in steps.tracked(".py") if name.startswith(f"{folder}/")]


def packages() -> list[Path]:
    """The packages of the product. Alembic's scripts are named by their versions."""
    within = [file for folder in PRODUCT for file in modules(folder) if "migrations" not in file.parts]
    return sorted({file.parent for file in within if file.name == "__init__.py"})


def statements(code: str) -> int:
    """Count the statements of a module. Docstrings do not count."""
    found = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.stmt)]
    return sum(1 for statement in found if not is_text(statement))


def is_text(one: ast.stmt) -> bool:
    return isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str)


def test_statements_count_in_whatever_block_and_docstrings_do_not() -> None:
    code = """
        '''A module.'''
        import a
        class A:
            '''A class.'''
            b: int = 0
            def c(self):
                if self.b:
                    return 1
                return 2
        """
    assert statements(textwrap.dedent(code)) == 7


def test_the_whole_product_has_a_bounded_number_of_statements() -> None:
    counts = {folder: sum(statements(file.read_text()) for file in modules(folder)) for folder in COUNTED}

    total = sum(counts.values())

    assert min(counts.values()) > 300
    assert total <= MOST_STATEMENTS, (
        f"the product has {total} statements, {counts}. Look for what your change makes superfluous, and for code that "
        f"is there twice, and delete it: docs/decisions/0060-what-stays-and-what-goes.md says what may go. Raise "
        f"MOST_STATEMENTS only for a feature that the docs describe, by what it needs, and say so in the commit"
    )


@pytest.mark.parametrize("package", [str(package.relative_to(steps.ROOT)) for package in packages()])
def test_at_most_a_dozen_modules_are_loose_in_a_package(package: str) -> None:
    assert len([file for file in Path(steps.ROOT, package).glob("*.py") if file.name != "__init__.py"]) <= 12


@pytest.mark.parametrize("package", [str(package.relative_to(steps.ROOT)) for package in packages()])
def test_a_package_names_its_modules_in_its_docstring(package: str) -> None:
    folder = Path(steps.ROOT, package)
    said = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    within = {file.stem for file in folder.glob("*.py")} | {file.parent.name for file in folder.glob("*/__init__.py")}

    assert {name for name in within - {"__init__"} if not re.search(rf"`(?:\w+\.)?{name}`", said)} == set()


def test_each_package_says_that_it_has_types() -> None:
    roots = {package for package in packages() if not (package.parent / "__init__.py").exists()}

    assert len(roots) >= 14
    assert {str(root) for root in roots if not (root / "py.typed").exists()} == set()


def test_one_module_lets_signals_stop_a_program_so_that_forks_are_parted_from_it_everywhere() -> None:
    files = [file for folder in PRODUCT for file in modules(folder)]
    found = [file for file in files if re.search(r"add_signal_handler|set_wakeup_fd", file.read_text())]
    assert [str(file.relative_to(steps.ROOT)) for file in found] == ["packages/runtime/osrdyne_runtime/program.py"]


def test_at_most_eleven_folders_are_at_the_root() -> None:
    folders = {name.split("/")[0] for name in steps.tracked() if "/" in name}
    # Ansible looks for the file of a collection in `meta`, and in no other place.
    assert len({name for name in folders - {"meta"} if not name.startswith(".")}) <= 11


def test_the_python_of_the_environment_finds_what_is_in_lab_and_tools_from_any_folder(tmp_path: Path) -> None:
    programs = sorted(file.parent.name for file in Path(steps.ROOT, "lab").glob("*/__init__.py"))
    assert len(programs) == 4
    words = [str(steps.BIN / "python"), "-c", f"import steps, {', '.join(programs)}"]
    subprocess.run(words, cwd=tmp_path, env=steps.environment(), check=True)


def test_no_two_classes_of_the_product_have_one_name() -> None:
    found = defaultdict(set)
    for folder in PRODUCT:
        for file in set(modules(folder)) - {Path(steps.ROOT, SHOWS)}:
            for statement in ast.parse(file.read_text()).body:
                if isinstance(statement, ast.ClassDef) and not statement.name.startswith("_"):
                    found[statement.name].add(str(file.relative_to(steps.ROOT)))

    assert {name: files for name, files in found.items() if len(files) > 1 and name not in OF_USERS} == {}
