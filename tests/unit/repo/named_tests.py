"""Which tests a page names, such as `broker/test_client::test_confirms_are_a_choice`, and whether they exist."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[2]
_NAMED = re.compile(r"`((?:unit|broker|drivers|simulation|security|faults|bus)/[^`]+)`")


def named_in(page: str) -> list[str]:
    """Return the tests, and the files of tests (`unit/*`, `unit/test_target::*`), that a page names."""
    return sorted({match for match in _NAMED.findall(page) if not match.endswith("/")})


def exists(name: str) -> bool:
    """Say whether there is such a test, or such a file or folder of tests."""
    file, _, test = name.partition("::")
    if file.endswith("/*"):
        return bool(list((TESTS / file.removesuffix("/*")).glob("test_*.py")))
    path = TESTS / f"{file}.py"
    if not path.is_file():
        return False
    pattern = {"": "", "*": r"^(?:async )?def test_"}.get(test, rf"^(?:async )?def {re.escape(test)}\(")
    return re.search(pattern, path.read_text(encoding="utf-8"), re.MULTILINE) is not None
