"""The table of known bugs names tests that exist."""

from __future__ import annotations

import re

import pytest

from tests.unit.repo.named_tests import TESTS, exists, named_in

PAGE = (TESTS / "fifty-bugs.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (\d+) \| .+ \| (.+) \|$", PAGE, re.MULTILINE)


def test_every_one_of_the_fifty_has_a_row_with_a_test_or_a_reason() -> None:
    assert [int(number) for number, _ in ROWS] == list(range(1, 51))
    assert all(reason.strip() for _, reason in ROWS)


@pytest.mark.parametrize("name", named_in(PAGE))
def test_what_the_page_names_exists(name: str) -> None:
    assert exists(name)


@pytest.mark.parametrize("name", ["unit/test_nothing::*", "unit/test_docs_fifty_bugs::test_nothing", "nothing/*"])
def test_what_does_not_exist_is_noticed(name: str) -> None:
    assert not exists(name)
