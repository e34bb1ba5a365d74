"""The pages of facts about RabbitMQ have what the code cites, and name tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import steps
from tests.unit.repo.named_tests import exists, named_in

NAMES = ("rabbitmq-facts.md", "rabbitmq-lost-queues.md")
PAGES = {name: Path(steps.ROOT, "docs/reference", name).read_text(encoding="utf-8") for name in NAMES}
#: Links as pages and comments write them, with what they point to on the page.
CITED = re.compile(r"(rabbitmq-(?:facts|lost-queues)\.md)(?:#([\w-]*))?")


def anchors(page: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def cited() -> list[tuple[str, str, str]]:
    """Return file, page and anchor of every place that cites a page; the anchor is empty where there is none."""
    found = []
    for file in steps.tracked():
        if file.endswith((".py", ".md")) and Path(steps.ROOT, file) != Path(__file__):
            text = Path(steps.ROOT, file).read_text(encoding="utf-8")
            found += [(file, page, anchor) for page, anchor in CITED.findall(text)]
    return sorted(set(found))


@pytest.mark.parametrize(("file", "page", "anchor"), cited())
def test_what_is_cited_is_on_the_page(file: str, page: str, anchor: str) -> None:
    assert not anchor or anchor in anchors(PAGES[page])


def test_the_daemon_and_the_protocol_cite_the_page() -> None:
    assert {"daemon", "packages"} <= {file.partition("/")[0] for file, _, anchor in cited() if anchor}


def test_what_the_tree_cites_is_in_the_tree() -> None:
    others = re.compile(r"broker-facts|(?<!_)pitfalls? \d", re.IGNORECASE)
    texts = {file: Path(steps.ROOT, file).read_text() for file in steps.tracked() if file.endswith((".py", ".md"))}
    assert [
        file for file, text in texts.items() if others.search(text) and Path(file).name != Path(__file__).name
    ] == []


@pytest.mark.parametrize("name", named_in("\n".join(PAGES.values())))
def test_what_the_page_names_exists(name: str) -> None:
    assert exists(name)


def test_every_section_names_a_test() -> None:
    sections = [word for page in PAGES.values() for word in re.split(r"^## ", page, flags=re.MULTILINE)[1:]]
    assert [section.partition("\n")[0] for section in sections if not named_in(section)] == []
