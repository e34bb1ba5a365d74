"""The pages that newcomers read first are in plain English: short sentences, and no words that puzzle."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import steps

PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "docs/README.md",
    "docs/airports.md",
    "docs/architecture.md",
    "docs/benchmarks.md",
    "docs/cli.md",
    "docs/client.md",
    "docs/comparison.md",
    "docs/drivers.md",
    "docs/environments.md",
    "docs/faults.md",
    "docs/images.md",
    "docs/install.md",
    "docs/invariants.md",
    "docs/operations.md",
    "docs/pipeline.md",
    "docs/protocol.md",
    "docs/quickstart.md",
    "docs/rabbitmq-facts.md",
    "docs/security.md",
    "docs/settings.md",
    "docs/simulation.md",
    "docs/testing.md",
    "docs/tour.md",
    "docs/worker.md",
    "libs/amqp/README.md",
    "libs/client/README.md",
    "libs/protocol/README.md",
    "libs/worker/README.md",
    "roles/daemon/README.md",
    "roles/rabbitmq/README.md",
    "roles/topology/README.md",
)
#: Words a sentence.
MOST = 25
#: Words and phrases of the project's own dialect, which readers stumbled over.
DIALECT = re.compile(r"\b(nobody|somebody|anew|(is|are|was|were) told)\b|(?:^|[.!?] )(Who|Whoever) ", re.IGNORECASE)


def prose(text: str) -> str:
    """A page without code, tables, headings, pictures and the targets of links."""
    text = re.sub(r"^[ ]*```.*?^[ ]*```", "\n", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^(?:\||#).*$", "\n", text, flags=re.MULTILINE)
    text = re.sub(r"!\[.*?\]\(.*?\)", "", text, flags=re.DOTALL)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"`[^`]*`", "x", text)


def sentences(text: str) -> list[str]:
    """The sentences of a page. A list item begins a new one, and a blank line or a colon ends one."""
    found = []
    for paragraph in re.split(r"\n\s*\n|\n\s*(?:[-*]|\d+\.) ", f"\n{prose(text)}"):
        joined = " ".join(paragraph.split()).replace("**", "")
        found += [one for one in re.split(r"(?<=[.!?;:])\s+", joined) if one]
    return found


def too_long(text: str) -> list[str]:
    return [one for one in sentences(text) if len(one.split()) > MOST]


@pytest.mark.parametrize("page", PAGES)
def test_no_sentence_has_more_than_25_words(page: str) -> None:
    assert too_long(Path(steps.ROOT, page).read_text()) == []


@pytest.mark.parametrize("page", PAGES)
def test_no_page_speaks_the_dialect(page: str) -> None:
    text = prose(Path(steps.ROOT, page).read_text())

    assert [found[0] for found in DIALECT.finditer(" ".join(text.split()))] == []


def test_a_long_sentence_is_found_wherever_its_lines_break() -> None:
    long = "word " * 13 + "\n" + "word " * 13 + "."

    assert len(too_long(f"Short one. {long}")) == 1
    assert too_long(f"```sh\n{long}\n```\n| {long.replace(chr(10), ' ')} |\n[short]({'a' * 300})") == []
