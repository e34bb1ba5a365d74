"""docs/start/tour.md leads to code that exists: files by their links, and in them the names in backquotes."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import steps

PAGE = Path(steps.ROOT, "docs/start/tour.md")
#: Each link to code: its text, and the file.
LINKS = re.findall(r"\[([^\]]+)\]\(\.\./\.\./([\w/]+\.py)\)", PAGE.read_text())
MOST_LINES = 60


def names(path: str) -> set[str]:
    """The classes and functions that a file defines, methods among them."""
    tree = ast.parse(Path(steps.ROOT, path).read_text())
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


@pytest.mark.parametrize(("text", "path"), LINKS)
def test_a_linked_name_is_defined_in_the_linked_file(text: str, path: str) -> None:
    assert Path(steps.ROOT, path).is_file()
    if text.startswith("`"):
        assert text.strip("`") in names(path)


def test_the_tour_passes_through_client_worker_and_each_part_of_the_daemon() -> None:
    folders = {Path(path).parent.name for _, path in LINKS}

    assert {"osrdyne_client", "osrdyne_worker", "intake", "state", "reconcile", "drivers", "failures"} <= folders


def test_the_tour_has_at_most_60_lines() -> None:
    assert len(PAGE.read_text().splitlines()) <= MOST_LINES
