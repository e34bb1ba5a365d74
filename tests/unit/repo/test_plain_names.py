"""Names say what they name: classes by nouns, loop variables by what they hold, constants with their unit."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import steps

#: Most characters of the name of a test: a line of CI that fails shows it whole.
MOST_OF_A_NAME = 90
#: Participles that do not end in -ed or -ing.
PARTICIPLES = frozenset(
    {
        *("Begun", "Built", "Cut", "Done", "Found", "Given", "Gone", "Heard", "Held", "Kept", "Known", "Left", "Lost"),
        *("Made", "Meant", "Proven", "Put", "Read", "Said", "Seen", "Sent", "Set", "Shown", "Spent", "Taken", "Told"),
        *("Took", "Unread", "Unsent", "Written"),
    }
)
#: Nouns that end as participles do.
NOUNS = frozenset({"Binding", "Finding", "Monitoring", "Opening", "Routing", "Set", "Setting", "Timing"})
#: Public since 0.1.0: programs of users name them.
PUBLIC = frozenset({"Brokered", "Cancelled", "Collected", "Registered"})
#: Bases of what is raised. An error may be called by what happened: `Expired`, `Returned`.
RAISED = re.compile(r"Exception$|Error$|Lost$|Closed$|^_Later$")
FOLDERS = sorted({name.split("/")[0] for name in steps.tracked(".py") if "/" in name})


def code_in(folder: str) -> list[str]:
    return [name for name in steps.tracked(".py") if name.startswith(f"{folder}/")]


def participles(source: str) -> Iterator[str]:
    """The classes of a module whose name is only a participle, those that are raised left out."""
    if not any(map(is_participle, re.findall(r"\bclass (\w+)", source))):
        return  # to parse it takes long
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ClassDef) or not is_participle(node.name):
            continue
        if not any(RAISED.search(ast.unparse(base)) for base in node.bases):
            yield node.name


def is_participle(of_a_class: str) -> bool:
    name = of_a_class.lstrip("_")
    shaped = re.fullmatch("[A-Z][a-z]+(?:ed|ing)", name) is not None
    return (shaped or name in PARTICIPLES) and name not in NOUNS | PUBLIC


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_class_is_called_by_a_participle_alone(folder: str) -> None:
    found = {name: list(participles(Path(steps.ROOT, name).read_text())) for name in code_in(folder)}

    assert {name: classes for name, classes in found.items() if classes} == {}


def test_a_participle_is_found_unless_it_is_raised() -> None:
    code = (
        "class Held: ...\nclass _Waiting(Base): ...\nclass Expired(CallError): ...\n"
        "class HeldLock: ...\nclass Finding: ...\n"
    )

    assert list(participles(code)) == ["Held", "_Waiting"]


def test_the_name_of_a_test_has_at_most_90_characters() -> None:
    names = {name: re.findall(r"def (test_\w+)", Path(steps.ROOT, name).read_text()) for name in steps.tracked(".py")}

    assert sum(map(len, names.values())) > 2500
    assert [f"{name}: {test}" for name, tests in names.items() for test in tests if len(test) > MOST_OF_A_NAME] == []


def loops_over_one(source: str) -> list[int]:
    """The lines of a module whose loop, comprehension or lambda calls what it holds `one`."""
    if not re.search(r"\b(for|lambda)\b.*\bone\b", source):
        return []  # to parse it takes long
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            names = [name.id for name in ast.walk(node.target) if isinstance(name, ast.Name)]
            found += [node.target.lineno] if "one" in names else []
        elif isinstance(node, ast.Lambda):
            found += [node.lineno] if "one" in [argument.arg for argument in node.args.args] else []
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_loop_variable_says_what_it_holds_and_is_not_one(folder: str) -> None:
    found = {name: lines for name in code_in(folder) if (lines := loops_over_one(Path(steps.ROOT, name).read_text()))}

    assert found == {}


def test_a_loop_over_one_is_found_in_each_form() -> None:
    code = "for one in a: pass\n[b for c, one in a]\nsorted(a, key=lambda one: one.b)\nfor line in a: one(line)\n"

    assert loops_over_one(code) == [1, 2, 3]


#: A constant whose comment says that it is a number of seconds, or the first of several.
SECONDS = re.compile(r"^#: Seconds\b.*\n(?:#:.*\n)*(_?[A-Z][A-Z0-9_]*)(?:, \w+)*(?:: \w+)? = ", re.MULTILINE)


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_name_of_a_constant_in_seconds_says_so(folder: str) -> None:
    named = [(name, found) for name in code_in(folder) for found in SECONDS.findall(Path(steps.ROOT, name).read_text())]

    assert [(name, constant) for name, constant in named if not constant.endswith("_SECONDS")] == []
