"""The index of decisions is whole."""

from __future__ import annotations

import re
from pathlib import Path

import steps

FOLDER = Path(steps.ROOT, "docs/decisions")


def test_the_index_has_each_decision_once() -> None:
    table = FOLDER.joinpath("README.md").read_text().partition("| part |")[2]
    listed = re.findall(r"\]\((\d{4}-[\w-]+\.md)\)", table)

    assert sorted(listed) == sorted(page.name for page in FOLDER.glob("[0-9]*.md"))
