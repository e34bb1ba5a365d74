"""docs/explain/invariants.md has the nine invariants with tests that exist, and what cites one links the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import steps
from tests.unit.repo.named_tests import TESTS, exists, named_in

PAGE = Path(steps.ROOT, "docs/explain/invariants.md").read_text(encoding="utf-8")
SECTIONS = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
#: "invariant 3", "Invariants 2 (deadlines), 3", "the nine invariants", "the first invariant".
CITES = re.compile(
    r"\binvariants?\s+(?:\d|\{)|\b(?:nine|first|design's)\s+invariants?\b|\binvariants of\b", re.IGNORECASE
)


def citing() -> list[str]:
    """Return the pages and modules that cite invariants."""
    return [
        name
        for name in steps.tracked(".py", ".md")
        if name not in ("docs/explain/invariants.md", "tests/unit/repo/test_docs_invariants.py")
        and CITES.search(Path(steps.ROOT, name).read_text(encoding="utf-8"))
    ]


def test_the_page_has_nine_numbered_headings() -> None:
    assert [section.partition(".")[0] for section in SECTIONS] == [str(number) for number in range(1, 10)]


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.partition("\n")[0])
def test_each_invariant_names_a_test_on_a_real_broker_of_its_number(section: str) -> None:
    number = section.partition(".")[0]
    assert [test for test in named_in(section) if f"broker/test_daemon_invariants::test_{number}_" in test]


def test_the_page_names_every_test_of_the_invariants() -> None:
    source = (TESTS / "broker/test_daemon_invariants.py").read_text(encoding="utf-8")
    numbered = {
        f"broker/test_daemon_invariants::{match}" for match in re.findall(r"^def (test_\d_\w+)", source, re.MULTILINE)
    }
    assert numbered <= set(named_in(PAGE))


@pytest.mark.parametrize("name", named_in(PAGE))
def test_what_the_page_names_exists(name: str) -> None:
    assert exists(name)


@pytest.mark.parametrize("name", citing())
def test_what_cites_an_invariant_links_the_page(name: str) -> None:
    assert "invariants.md" in Path(steps.ROOT, name).read_text(encoding="utf-8")


def test_pages_and_tests_cite_the_invariants() -> None:
    assert {"docs/explain/simulation.md", "tests/broker/test_daemon_invariants.py", "lab/simulation/findings.py"} <= {
        *citing()
    }
