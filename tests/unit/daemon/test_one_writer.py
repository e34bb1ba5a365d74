"""Which module reads and writes which value that tasks share is as docs/explain/architecture.md says."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import steps

DAEMON = Path(steps.ROOT, "daemon/osrdyne")
STATE = DAEMON / "state" / "pool.py"
PAGE = Path(steps.ROOT, "docs/explain/architecture.md").read_text(encoding="utf-8")
SECTION = PAGE.split("## Who reads and writes what\n")[1].partition("\n## ")[0]

#: Methods that change what they are called on, or that put a key into a set of changes.
CHANGING = {
    *(
        "add",
        "append",
        "clear",
        "discard",
        "extend",
        "insert",
        "pop",
        "popitem",
        "remove",
        "set",
        "setdefault",
        "update",
    ),
    *("forget", "advance", "make_room", "note_demand", "keep", "require", "renew_on_worker_start"),
}
#: Functions that change a value which they are given.
HELPERS = {"extra_lifetime": "target"}
#: Names of the state in the code.
STATES = {"state", "_state"}


#: Fields that belong to a value of another name: sets of changed keys belong to what changed.
VALUES = {
    "tracker": "target",
    "target_changes": "target",
    "queue_changes": "queues",
    "group_changes": "groups",
    "activity_changes": "activity",
    "totals_changes": "totals",
    "lost_changes": "lost",
}


def value_of(name: str) -> str:
    """Return the value that a field of the state belongs to, as the page calls it."""
    return VALUES.get(name, name)


@dataclass
class Uses:
    """The values that some code reads and writes."""

    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)


@cache
def fields() -> frozenset[str]:
    """Return the fields of the state that are values; `names` and `clock` are none."""
    [state] = [
        one
        for one in ast.walk(ast.parse(STATE.read_text()))
        if isinstance(one, ast.ClassDef) and one.name == "PoolState"
    ]
    named = {one.target.id for one in state.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)}
    return frozenset(named - {"names", "clock"})


class Reader(ast.NodeVisitor):
    """Finds what a function does with fields of the state, also under another name within it."""

    def __init__(self, states: set[str], methods: dict[str, Uses]) -> None:
        self._states = states
        self._methods = methods
        self._aliases: dict[str, str] = {}
        self.uses = Uses()

    def _is_state(self, node: ast.expr) -> bool:
        return (isinstance(node, ast.Name) and node.id in self._states) or (
            isinstance(node, ast.Attribute) and node.attr in self._states
        )

    def _field(self, node: ast.AST) -> str | None:
        """Return the field that an expression is, or is a part of."""
        match node:
            case ast.Name(id=name):
                return self._aliases.get(name)
            case ast.Attribute(value=value, attr=name) if self._is_state(value):
                return name if name in fields() else None
            case ast.Attribute(value=value) | ast.Subscript(value=value):
                return self._field(value)
            case ast.Call(func=ast.Attribute(value=value, attr="get" | "setdefault")):
                return self._field(value)
        return None

    def _written(self, node: ast.expr) -> None:
        for one in ast.walk(node) if isinstance(node, ast.Tuple) else [node]:
            found = None if isinstance(one, ast.Name) else self._field(one)
            if found is not None:
                self.uses.writes.add(value_of(found))

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._written(target)
            self._alias(target, node.value)
        self.generic_visit(node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self._alias(node.target, node.value)
        self.generic_visit(node)

    def _alias(self, target: ast.expr, value: ast.expr) -> None:
        pairs = [(target, value)]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs = list(zip(target.elts, value.elts, strict=True))
        for name, what in pairs:
            if isinstance(name, ast.Name) and (found := self._field(what)) is not None:
                self._aliases[name.id] = found

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._written(node.target)
        self.generic_visit(node)

    def visit_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            self._written(target)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute):
            if self._is_state(node.func.value) and (known := self._methods.get(node.func.attr)) is not None:
                self.uses.reads |= known.reads
                self.uses.writes |= known.writes
            found = self._field(node.func.value)
            if found is not None and node.func.attr in CHANGING:
                self.uses.writes.add(value_of(found))
            if node.func.attr in HELPERS and any(self._field(one) is not None for one in node.args):
                self.uses.writes.add(HELPERS[node.func.attr])
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Load) and self._is_state(node.value) and node.attr in fields():
            self.uses.reads.add(value_of(node.attr))
        self.generic_visit(node)


def uses_of(function: ast.AST, states: set[str], methods: dict[str, Uses]) -> Uses:
    reader = Reader(states, methods)
    reader.visit(function)
    return reader.uses


def functions(tree: ast.AST) -> list[ast.AST]:
    return [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]


@cache
def methods_of_the_state() -> dict[str, Uses]:
    found: dict[str, Uses] = {}
    for one in functions(ast.parse(STATE.read_text())):
        assert isinstance(one, ast.FunctionDef)
        found[one.name] = uses_of(one, {"self"}, {})
    return found


def uses_in(source: str) -> Uses:
    """Return what a module does with the values of the state."""
    found = Uses()
    for one in functions(ast.parse(source)):
        uses = uses_of(one, STATES, methods_of_the_state())
        found.reads |= uses.reads
        found.writes |= uses.writes
    return found


@cache
def modules() -> dict[str, Uses]:
    files = [file for file in sorted(DAEMON.rglob("*.py")) if file != STATE]
    return {str(file.relative_to(DAEMON).with_suffix("")): uses_in(file.read_text()) for file in files}


def values() -> set[str]:
    return {value_of(one) for one in fields()}


def table(first: str) -> list[list[str]]:
    """Return the cells of the rows of a table of the section, which is known by its first heading."""
    rows = SECTION.split(f"| {first} |")[1].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def named(cell: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", cell)) & values()


TASKS = {re.sub("`", "", row[0]): row for row in table("task")}


def test_each_task_writes_what_the_page_says() -> None:
    said = {task: named(row[2]) for task, row in TASKS.items()}
    found = {module: uses.writes for module, uses in modules().items() if uses.writes}
    assert {task: writes for task, writes in said.items() if writes} == found


def test_each_task_reads_what_the_page_says() -> None:
    said = {task: named(row[1]) for task, row in TASKS.items()}
    # The page has all that a task reads of others. Of the values that it writes itself it may leave some out.
    found = {task: modules()[task].reads for task in said}
    assert said == {task: reads & (said[task] | (reads - modules()[task].writes)) for task, reads in found.items()}


def test_each_value_has_one_writer_but_for_those_that_the_page_names() -> None:
    writers = defaultdict(set)
    for module, uses in modules().items():
        for value in uses.writes:
            writers[value].add(module)
    said = {next(iter(named(row[0]))): set(re.findall(r"`([\w/]+)`", row[1])) for row in table("value")}
    assert {value: found for value, found in writers.items() if len(found) > 1} == said
    assert set(writers) == values()


def test_a_write_is_seen_in_whatever_form() -> None:
    forms = [
        "self._state.totals = {}",
        "self._state.totals[key] = one",
        "del state.totals[key]",
        "state.totals.pop(key, None)",
        "self._state.totals.setdefault(key, one).ready = 1",
        "state, now = self._state, 0\n    state.totals[key].ready += 1",
        "before, self._state.totals = 1, {}",
        "totals = self._state.totals\n    totals[key] = 1",
        "one = self._state.totals.get(key)\n    one.ready = 1",
        "self._state.totals_changes.add(key)",
    ]
    for form in forms:
        assert uses_in(f"def f(self, state, key, one):\n    {form}\n").writes == {"totals"}, form
    assert uses_in("def f(self, key):\n    self._state.require(key)\n").writes == {"target"}
    assert uses_in("def f(self, key):\n    return self._state.totals.get(key)\n").writes == set()
