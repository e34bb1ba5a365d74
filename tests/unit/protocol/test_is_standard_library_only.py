"""The protocol package is what peers in any environment install: it brings nothing with it."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import steps

ALLOWED = {*sys.stdlib_module_names, "osrdyne_protocol"}


def imports(source: str) -> Iterator[str]:
    """The top-level names that a module imports, lazily within a function too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "osrdyne_protocol" if node.level else str(node.module).split(".")[0]


def test_the_protocol_imports_only_the_standard_library_and_itself() -> None:
    modules = [name for name in steps.tracked(".py") if name.startswith("packages/protocol/osrdyne_protocol/")]
    foreign = {name: set(imports(Path(steps.ROOT, name).read_text())) - ALLOWED for name in modules}

    assert modules
    assert {name: found for name, found in foreign.items() if found} == {}
