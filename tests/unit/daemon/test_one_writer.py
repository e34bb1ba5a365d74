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
STATE = DAEMON / "state"
PAGE = Path(steps.ROOT, "docs/explain/architecture.md").read_text(encoding="utf-8")
SECTION = PAGE.split("## Who reads and writes what\n")[1].partition("\n## ")[0]

#: Methods that change what they are called on, or that put a key into a set of changes.
CHANGING = {
    *("add", "append", "clear", "discard", "extend", "forget", "insert"),
    *("pop", "popitem", "remove", "set", "setdefault", "update"),
}
#: Functions that change a value which they are given.
HELPERS = {"extra_lifetime": "target"}
#: Names of the state in the code.
STATES = {"state", "_state"}
#: What a task calls a part of the state that it keeps.
OWN_NAMES = {"_counts": ("counts",)}
#: Parts of the state whose fields are values of their own, because they have different writers.
BY_FIELD = {"lost", "tally"}
#: A field that another task writes than the rest of its part.
ALONE = {("queues", "unrouted")}

#: A part of the state, and one of its attributes.
Place = tuple[str, ...]


def value_of(place: Place) -> str | None:
    """Return the value that a place belongs to, as the page calls it; None where it is several values."""
    if place in ALONE:
        return ".".join(place)
    if place[0] in BY_FIELD:
        return ".".join((*place[:1], "evidence") if place[1] == "changes" else place) if place[1:] else None
    return "target" if place[0] == "tracker" else place[0]


@dataclass
class Uses:
    """The values that some code reads and writes."""

    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)


@cache
def classes() -> dict[str, ast.ClassDef]:
    """Return the classes of the state by name."""
    trees = [ast.parse(file.read_text()) for file in sorted(STATE.glob("*.py"))]
    return {node.name: node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)}


def fields(name: str) -> dict[str, str]:
    """Return the annotation of each field of a class of the state."""
    return {
        node.target.id: ast.unparse(node.annotation)
        for node in classes()[name].body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


@cache
def parts() -> dict[str, str]:
    """Return the class of each part of the state; `names` and `clock` are none of its parts."""
    return {name: kind for name, kind in fields("PoolState").items() if name not in ("names", "clock")}


def methods(name: str) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in classes()[name].body if isinstance(node, ast.FunctionDef)}


@cache
def uses_of_method(part: str | None, name: str) -> Uses | None:
    """Return what a method of a part, None: of the whole state, does with values; None where there is no such one."""
    method = methods(parts()[part] if part else "PoolState").get(name)
    if method is None:
        return None
    return uses_of(method, set() if part else {"self"}, {"self": (part,)} if part else {})


class Reader(ast.NodeVisitor):
    """Finds what a function does with values of the state, also under another name within it."""

    def __init__(self, states: set[str], aliases: dict[str, Place]) -> None:
        self._states = states
        self._aliases = aliases
        self.uses = Uses()

    def _is_state(self, node: ast.expr) -> bool:
        return (isinstance(node, ast.Name) and node.id in self._states) or (
            isinstance(node, ast.Attribute) and node.attr in self._states
        )

    def _place(self, node: ast.AST) -> Place | None:
        """Return the place in the state that an expression is, or is a part of."""
        match node:
            case ast.Name(id=name):
                return self._aliases.get(name)
            case ast.Attribute(attr=name) if name in OWN_NAMES:
                return OWN_NAMES[name]
            case ast.Attribute(value=value, attr=name) if self._is_state(value):
                return (name,) if name in parts() else None
            case ast.Attribute(value=value, attr=name):
                found = self._place(value)
                return (*found, name) if found is not None and len(found) == 1 else found
            case ast.Subscript(value=value):
                return self._place(value)
            case ast.Call(func=ast.Attribute(value=value, attr="get" | "setdefault")):
                return self._place(value)
        return None

    def _written(self, node: ast.expr) -> None:
        for target in ast.walk(node) if isinstance(node, ast.Tuple) else [node]:
            if not isinstance(target, ast.Name):
                self._add(self.uses.writes, self._place(target))

    @staticmethod
    def _add(values: set[str], place: Place | None) -> None:
        if place is not None and (value := value_of(place)) is not None:
            values.add(value)

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
            if isinstance(name, ast.Name) and (found := self._place(what)) is not None:
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
            place, name = self._place(node.func.value), node.func.attr
            known = None
            if self._is_state(node.func.value):
                known = uses_of_method(None, name)
            elif place is not None and len(place) == 1:
                known = uses_of_method(place[0], name)
            if known is not None:
                self.uses.reads |= known.reads
                self.uses.writes |= known.writes
            elif name in CHANGING:
                self._add(self.uses.writes, place)
            if name in HELPERS and any(self._place(argument) is not None for argument in node.args):
                self.uses.writes.add(HELPERS[name])
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        place = self._place(node)
        if isinstance(node.ctx, ast.Load) and place is not None and not (place[1:] and is_method(*place)):
            self._add(self.uses.reads, place)
        self.generic_visit(node)


def is_method(part: str, name: str) -> bool:
    return name in methods(parts()[part])


def uses_of(function: ast.AST, states: set[str], aliases: dict[str, Place]) -> Uses:
    reader = Reader(states, dict(aliases))
    reader.visit(function)
    return reader.uses


def functions(tree: ast.AST) -> list[ast.AST]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def uses_in(source: str) -> Uses:
    """Return what a module does with the values of the state."""
    found = Uses()
    for function in functions(ast.parse(source)):
        uses = uses_of(function, STATES, {})
        found.reads |= uses.reads
        found.writes |= uses.writes
    return found


@cache
def modules() -> dict[str, Uses]:
    files = [file for file in sorted(DAEMON.rglob("*.py")) if file.parent != STATE]
    return {str(file.relative_to(DAEMON).with_suffix("")): uses_in(file.read_text()) for file in files}


def values() -> set[str]:
    by_field = {f"{part}.{name}" for part in BY_FIELD for name in fields(parts()[part]) if name != "changes"}
    alone = {".".join(place) for place in ALONE}
    return {str(value_of((part,))) for part in parts().keys() - BY_FIELD} | by_field | alone


def table(first: str) -> list[list[str]]:
    """Return the cells of the rows of a table of the section, which is known by its first heading."""
    rows = SECTION.split(f"| {first} |")[1].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def named(cell: str) -> set[str]:
    return set(re.findall(r"`([\w.]+)`", cell)) & values()


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
        "self._state.counts.totals = {}",
        "self._state.counts.totals[key] = given",
        "del state.counts.totals[key]",
        "state.counts.totals.pop(key, None)",
        "self._state.counts.totals.setdefault(key, given).ready = 1",
        "state, now = self._state, 0\n    state.counts.totals[key].ready += 1",
        "before, self._state.counts.totals = 1, {}",
        "totals = self._state.counts.totals\n    totals[key] = 1",
        "counts = self._state.counts\n    counts.totals[key] = 1",
        "counts = state.counts\n    counts.forget_waits()",
        "found = self._state.counts.totals.get(key)\n    found.ready = 1",
        "self._state.counts.changes.add(key)",
        "self._counts.alarm = None",
        "self._counts.begin()",
    ]
    for form in forms:
        assert uses_in(f"def f(self, state, key, given):\n    {form}\n").writes == {"counts"}, form
    assert uses_in("def f(self, key):\n    return self._state.counts.totals.get(key)\n").writes == set()


def test_a_method_writes_what_it_writes_in_its_part() -> None:
    written = {
        "state.require(key)": {"target"},
        "state.tracker.advance(now)": {"target"},
        "state.tracker.next_change()": set(),
        "state.queues.forget(key)": {"queues", "queues.unrouted"},
        "state.queues.unrouted.discard(key)": {"queues.unrouted"},
        "state.queues.phase(key)": set(),
        "state.lost.take(key, now)": {"lost.evidence"},
        "state.lost.held(key)": set(),
        "lost = state.lost\n    lost.take_unconfirmed()": {"lost.unconfirmed"},
        "state.tally.dropped += 1": {"tally.dropped"},
    }
    for form, values_written in written.items():
        assert uses_in(f"def f(state, key, now):\n    {form}\n").writes == values_written, form
    assert uses_in("def f(state, key):\n    state.lost.held(key)\n").reads == {"lost.former_totals"}
