"""Which tiers need an engine: those whose tests import the module that starts it, directly or by way of other tests."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from testbed import ROOT
from tiers import EXACT, TESTS


def tiers_that_import(*modules: str) -> frozenset[str]:
    """Return the tiers with real engines whose tests import one of these modules, such as `testbed.postgres`."""
    return frozenset(tier.name for tier in _folders() if {*modules} & _modules(tier))


def broker_tiers() -> frozenset[str]:
    """Return the tiers with real engines, all of which have brokers."""
    return frozenset(tier.name for tier in _folders())


def _folders() -> list[Path]:
    return [path for path in TESTS.iterdir() if path.name not in EXACT and any(path.rglob("test_*.py"))]


@cache
def _modules(folder: Path) -> frozenset[str]:
    """Return all modules that the files of a tier import, and the files of tests that those import."""
    found: set[str] = set()
    waiting = [*folder.rglob("*.py")]
    for file in waiting:
        new = {*_imports(file)} - found
        found |= new
        ours = (Path(ROOT, f"{name.replace('.', '/')}.py") for name in new if name.startswith("tests."))
        waiting += [path for path in ours if path.exists()]
    return frozenset(found)


@cache
def _imports(file: Path) -> frozenset[str]:
    return frozenset(_named(ast.parse(file.read_bytes())))


def _named(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
