"""Which private names of libraries the product uses, and that no next version of such a library is taken unseen."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
import textwrap
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from packaging.requirements import Requirement

import steps

#: Library -> its private names that our code uses, as the code says.
USED = {
    "pika": {
        # In Wire, what it has in common with the connection that it derives from:
        *("_adapter_connect_stream", "_adapter_emit_data", "_connection_workflow", "_frame_buffer", "_nbio"),
        *("_on_connection_close_from_broker", "_on_connection_workflow_done", "_on_data_available"),
        *("_on_stream_terminated", "_opened", "_process_frame", "_proto_connection_lost", "_proto_connection_made"),
        *("_terminate_stream", "_transport"),
        # Beside it, what it asks of a channel, a transport and what connects:
        *("_MAX_CONSUME_BYTES", "_MAX_RECV_BYTES", "_STATE_ACTIVE", "_blocked", "_blocking", "_connector"),
        *("_generate_consumer_tag", "_sock", "_state"),
    },
    "proton": {"_impl"},
    "redis": {"_connection_arguments", "_writer"},
}
#: Modules of one distribution, which have names of their own.
PART_OF = {"cproton": "proton"}
DISTRIBUTIONS = {"pika": "pika", "proton": "python-qpid-proton", "redis": "redis"}
PRODUCT = ("packages/", "daemon/", "infra/")
#: Public in spite of their names.
NAMED_TUPLE = {"_asdict", "_replace"}


def is_library(module: str) -> bool:
    return module.partition(".")[0] not in sys.stdlib_module_names and not module.startswith("osrdyne")


def library(module: str) -> str:
    top = module.partition(".")[0]
    return PART_OF.get(top, top)


@cache
def modules() -> list[tuple[str, ast.Module, dict[str, str]]]:
    """Each module of the product that imports a library: its file, what it says, and where its names are from."""
    files = [file for file in steps.tracked(".py") if file.startswith(PRODUCT) and "/migrations/" not in file]
    trees = [(file, ast.parse(Path(steps.ROOT, file).read_text())) for file in files]
    every = [(file, tree, imported(tree)) for file, tree in trees]
    return [statement for statement in every if any(map(is_library, statement[2].values()))]


def imported(tree: ast.AST) -> dict[str, str]:
    """What a module imports: the name that it has here, and where it is from."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {(name.asname or name.name).partition(".")[0]: name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {name.asname or name.name: node.module for name in node.names}
    return found


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def of_others(tree: ast.AST, origins: dict[str, str]) -> Iterator[str]:
    """The private names that are imported, or asked of objects of which no class of the module has them."""
    yield from (name for name, origin in origins.items() if private(name) and is_library(origin))
    ours = own(tree) | NAMED_TUPLE
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Attribute) and private(node.attr)) or node.attr in ours:
            continue
        # A module that is imported is of a library or not; any other object may be.
        if is_library(origins.get(ast.unparse(node.value), "?")):
            yield node.attr


def own(tree: ast.AST) -> set[str]:
    """The private names that classes define, or ask of themselves."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and private(node.attr):
            asked = node.value.func if isinstance(node.value, ast.Call) else node.value
            if isinstance(asked, ast.Name) and asked.id in ("self", "cls", "super"):
                found.add(node.attr)
    return {name for name in found if private(name)}


def may_derive(tree: ast.Module, origins: dict[str, str]) -> Iterator[ast.ClassDef]:
    """The classes with private names that have a base of a library, or one that the module gives another name."""
    foreign = {name for name, origin in origins.items() if is_library(origin)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            foreign |= {ast.unparse(target) for target in node.targets}
    for statement in tree.body:
        bases = (
            {ast.unparse(base).partition(".")[0] for base in statement.bases}
            if isinstance(statement, ast.ClassDef)
            else set()
        )
        if isinstance(statement, ast.ClassDef) and bases & foreign and own(statement):
            yield statement


def shared_with_bases(file: str, node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """The private names that a class has in common with a class of a library that it derives from."""
    for base in getattr(importlib.import_module(module_of(file)), node.name).__mro__:
        if is_library(base.__module__):
            theirs = {*vars(base)}
            with suppress(OSError, TypeError):  # made without a source, or compiled
                theirs |= own(ast.parse(textwrap.dedent(inspect.getsource(base))))
            yield from ((library(base.__module__), name) for name in own(node) & theirs)


def module_of(file: str) -> str:
    root = next(parent for parent in Path(file).parents if not Path(steps.ROOT, parent, "__init__.py").exists())
    return ".".join(Path(file).relative_to(root).with_suffix("").parts)


def found() -> dict[str, set[str]]:
    names = defaultdict(set)
    for file, tree, origins in modules():
        libraries = {*map(library, origins.values())}
        for name in of_others(tree, origins):
            # A module that uses private names imports one library of which it can be.
            (whose,) = libraries & USED.keys()
            names[whose].add(name)
        # Where there is no qpid-proton, which is compiled, modules of the bus cannot be imported.
        if file.startswith("packages/bus/"):
            continue
        for node in may_derive(tree, origins):
            for whose, name in shared_with_bases(file, node):
                names[whose].add(name)
    return dict(names)


def asking() -> set[tuple[str, str]]:
    """Each package of ours whose code uses private names, and the library."""
    return {
        ("/".join(Path(file).parts[: 2 if file.startswith("packages/") else 1]), whose)
        for file, tree, origins in modules()
        for whose in {*map(library, origins.values())} & USED.keys()
        if any(of_others(tree, origins))
    }


def test_the_private_names_that_the_product_uses_are_these() -> None:
    assert found() == USED


def test_a_library_whose_private_names_are_used_is_bounded_below_its_next_version() -> None:
    assert {whose for _, whose in asking()} == USED.keys()
    for package, whose in asking():
        asked = tomllib.loads(Path(steps.ROOT, package, "pyproject.toml").read_text())["project"]
        extras = asked.get("optional-dependencies", {}).values()
        every = map(Requirement, [*asked["dependencies"], *(requirement for extra in extras for requirement in extra)])
        (bounds,) = [requirement.specifier for requirement in every if requirement.name == DISTRIBUTIONS[whose]]
        assert {bound.operator for bound in bounds} >= {">=", "<"}, (package, whose)
