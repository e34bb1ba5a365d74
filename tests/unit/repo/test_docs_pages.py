"""Each page of docs/ has its place, and what names a page names one that exists.

A page lies in the folder of its purpose, and docs/README.md names it. Pages are named in links, which
`test_readme` checks, and in the texts, comments and errors of code.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import steps
from tests.unit.repo.test_readme import LINK, anchors

#: A page of docs/ by its path, with a heading if it has one; not that of another site.
NAMED = re.compile(r"(?<![\w./-])(docs/[\w/-]+\.md)(?:#([\w-]+))?")
FOLDERS = {"start", "howto", "reference", "explain"}
#: About releases, where people look for them.
AT_THE_TOP = {"docs/README.md", "docs/releases.md", "docs/releasing.md", "docs/upgrading.md"}
MOST_LINES = 200
PAGES = [name for name in steps.tracked(".md") if name.startswith("docs/") and not name.startswith("docs/decisions/")]


def named(text: str) -> list[tuple[str, str]]:
    """The pages that a text names, each with a heading or an empty text."""
    return NAMED.findall(text)


def test_every_page_lies_in_the_folder_of_its_purpose() -> None:
    assert {name for name in PAGES if Path(name).parts[1] not in FOLDERS} == AT_THE_TOP
    assert {Path(name).parts[1] for name in PAGES} >= FOLDERS


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_at_most_200_lines(page: str) -> None:
    assert len(Path(steps.ROOT, page).read_text().splitlines()) <= MOST_LINES


def test_the_index_says_where_to_begin() -> None:
    first, _ = LINK.findall(Path(steps.ROOT, "docs/README.md").read_text())[0]
    assert first == "start/quickstart.md"


def test_the_index_names_every_page_exactly_once() -> None:
    linked = [link for link, _ in LINK.findall(Path(steps.ROOT, "docs/README.md").read_text())]
    of_docs = sorted(name for link in linked if (name := f"docs/{link}").split("/")[1] in FOLDERS or name in AT_THE_TOP)

    assert of_docs == sorted(name for name in PAGES if name != "docs/README.md")


def test_every_page_that_a_file_names_exists_with_its_heading() -> None:
    found = []
    for file in steps.tracked():
        content = Path(steps.ROOT, file).read_bytes()
        if b"\0" not in content and not file.startswith("seeds/"):
            found += [(file, page, heading) for page, heading in named(content.decode())]

    assert {"daemon", "packages", "infra", "lab", "roles", "tests"} <= {file.split("/")[0] for file, _, _ in found}
    assert [
        f"{file}: {page}#{heading}"
        for file, page, heading in found
        if not Path(steps.ROOT, page).is_file() or (heading and heading not in anchors(Path(steps.ROOT, page)))
    ] == []


def test_a_page_is_found_in_any_text_and_that_of_another_site_is_not() -> None:
    page = "docs/" + "start/x.md"

    assert named(f'raise Error("see {page}#an-anchor, or {page}")') == [(page, "an-anchor"), (page, "")]
    assert named("www.rabbitmq.com/docs/" + "streams.md ../docs/" + "x.md") == []


def test_every_test_file_that_a_page_names_exists() -> None:
    known = {Path(name).name for name in steps.tracked(".py")}
    named_files = re.compile(r"`(?:[\w/]+/)?(test_\w+\.py)`")
    found = [(page, name) for page in PAGES for name in named_files.findall(Path(steps.ROOT, page).read_text())]

    assert len(found) > 10
    assert [f"{page}: {name}" for page, name in found if name not in known] == []


def test_every_module_in_the_tables_of_the_architecture_exists() -> None:
    rows = re.findall(r"^\| `(\w+/\w+)` \|", Path(steps.ROOT, "docs/explain/architecture.md").read_text(), re.MULTILINE)

    assert len(rows) > 15
    assert [module for module in rows if not Path(steps.ROOT, f"daemon/osrdyne/{module}.py").is_file()] == []
