"""docs/reference/rabbitmq-facts.md has what the code cites, and names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import steps
from tests.unit.repo.named_tests import exists, named_in

NAME = "docs/reference/rabbitmq-facts.md"
PAGE = Path(steps.ROOT, NAME).read_text(encoding="utf-8")
#: Links as pages and comments write them, with what they point to on the page.
CITED = re.compile(r"rabbitmq-facts\.md(?:#([\w-]*))?")


def anchors(page: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings}


def cited() -> list[tuple[str, str]]:
    """Return file and anchor of every place that cites the page; the anchor is empty where there is none."""
    found = []
    for file in steps.tracked():
        if file.endswith((".py", ".md")) and Path(steps.ROOT, file) != Path(__file__):
            text = Path(steps.ROOT, file).read_text(encoding="utf-8")
            found += [(file, anchor) for anchor in CITED.findall(text)]
    return sorted(set(found))


@pytest.mark.parametrize(("file", "anchor"), cited())
def test_what_is_cited_is_on_the_page(file: str, anchor: str) -> None:
    assert not anchor or anchor in anchors(PAGE)


def test_the_daemon_and_the_protocol_cite_the_page() -> None:
    assert {"daemon", "packages"} <= {file.partition("/")[0] for file, anchor in cited() if anchor}


def test_what_the_tree_cites_is_in_the_tree() -> None:
    others = re.compile(r"broker-facts|(?<!_)pitfalls? \d", re.IGNORECASE)
    texts = {file: Path(steps.ROOT, file).read_text() for file in steps.tracked() if file.endswith((".py", ".md"))}
    assert [
        file for file, text in texts.items() if others.search(text) and Path(file).name != Path(__file__).name
    ] == []


@pytest.mark.parametrize("name", named_in(PAGE))
def test_what_the_page_names_exists(name: str) -> None:
    assert exists(name)


def test_every_section_names_a_test() -> None:
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
    assert [one.partition("\n")[0] for one in sections if not named_in(one)] == []
