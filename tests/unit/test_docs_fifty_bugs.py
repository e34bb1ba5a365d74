"""The table of known bugs names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs/fifty-bugs.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (\d+) \| .+ \| (.+) \|$", PAGE, re.MULTILINE)
NAMED = sorted(set(re.findall(r"`((?:unit|broker|drivers|simulation|security|faults)/[^`]+)`", PAGE)) - {"broker/"})


def test_every_one_of_the_fifty_has_a_row_with_a_test_or_a_reason() -> None:
    assert [int(number) for number, _ in ROWS] == list(range(1, 51))
    assert all(reason.strip() for _, reason in ROWS)


@pytest.mark.parametrize("name", [one for one in NAMED if not one.endswith("/")])
def test_what_the_page_names_exists(name: str) -> None:
    file, _, test = name.partition("::")
    if file.endswith("/*"):
        assert list((TESTS / file.removesuffix("/*")).glob("test_*.py"))
        return
    source = (TESTS / f"{file}.py").read_text(encoding="utf-8")
    assert re.search(r"^(?:async )?def test_" if test == "*" else rf"^(?:async )?def {test}\(", source, re.MULTILINE)
