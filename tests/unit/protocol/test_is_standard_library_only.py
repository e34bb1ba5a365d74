"""Protocol, runtime and pool are what peers in any environment install: they bring nothing with them."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import steps

ALLOWED = {*sys.stdlib_module_names, "osrdyne_protocol"}
#: What an extra brings, by the only modules that may import it.
EXTRAS = {
    "packages/runtime/osrdyne_runtime/settings/model.py": {"pydantic", "pydantic_core"},
    "packages/runtime/osrdyne_runtime/serve/answers.py": {"aiohttp", "prometheus_client"},
    "packages/runtime/osrdyne_runtime/serve/server.py": {"aiohttp"},
}


def imports(source: str) -> Iterator[str]:
    """The top-level names that a module imports, lazily within a function too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "osrdyne_protocol" if node.level else str(node.module).split(".")[0]


@pytest.mark.parametrize("package", ["protocol", "runtime", "pool"])
def test_a_base_package_imports_only_the_standard_library_the_protocol_and_itself(package: str) -> None:
    folder = f"packages/{package}/osrdyne_{package}/"
    modules = [name for name in steps.tracked(".py") if name.startswith(folder)]
    allowed = ALLOWED | {f"osrdyne_{package}"}
    foreign = {
        name: set(imports(Path(steps.ROOT, name).read_text())) - allowed - EXTRAS.get(name, set()) for name in modules
    }

    assert modules
    assert {name: found for name, found in foreign.items() if found} == {}
