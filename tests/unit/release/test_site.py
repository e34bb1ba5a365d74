"""The site of the docs: which pages it has in which order, what is an error, and how versions lie beside each other."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import site_of_docs
import steps
import versions

INDEX = """# All pages

## Start: learn by doing

| page | |
|---|---|
| [Last](start/z.md) | |
| [First](start/a.md), [Role](../roles/x/README.md#below) | |

## How-to: do something

| a pool: of workers | |
|---|---|
| [Operate](howto/operate.md) | |
"""
#: Apart, because these pages are not ours.
DOCS = "docs"
PAGE = "# A page\n\n{}\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small project with pages, read as those of the real one are."""
    pages = {
        "README.md": "# The project",
        "CHANGELOG.md": "# Changelog",
        "roles/x/README.md": "# Role\n\n## Below",
        "tools/program.py": "",
        "docs/README.md": INDEX,
        f"{DOCS}/start/z.md": "# Last",
        f"{DOCS}/start/a.md": "# First",
        f"{DOCS}/howto/operate.md": "# Operate",
        "docs/api/client.rst": "Client\n======\n\n.. automodule:: osrdyne_client\n",
    }
    for name, text in pages.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    shutil.copyfile(steps.ROOT / "docs/conf.py", tmp_path / "docs/conf.py")
    shutil.copytree(steps.ROOT / "docs/site", tmp_path / "docs/site")
    return tmp_path


def test_the_site_has_the_pages_of_the_index_in_its_order_and_the_interfaces(tree: Path) -> None:
    (tree / DOCS / "start/a.md").write_text(PAGE.format("[A folder](../../tools), [one with a page](../../roles/x)"))

    site_of_docs.build(tree / "site/1.2.3", "1.2.3", tree)

    index = (tree / "site/1.2.3/docs/README.html").read_text()
    menu = index[index.index("sidebar-tree") :]
    shown = ["Start", "start/z.html", "start/a.html", "x/README.html", "How-to: a pool", "howto/operate.html"]
    places = [menu.index(part) for part in [*shown, "api/client.html", "CHANGELOG.html"]]
    assert places == sorted(places)
    page = (tree / "site/1.2.3/docs/start/a.html").read_text()
    assert "A folder" in page
    assert 'href="../../roles/x/README.html"' in page
    client = (tree / "site/1.2.3/docs/api/client.html").read_text()
    assert client.index('id="osrdyne_client.Client.call"') < client.index('id="errors"')
    assert client.index('id="errors"') < client.index('id="osrdyne_client.CallTimeout"')
    assert 'data-version="1.2.3"' in index


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param("[away](gone.md)", id="page"),
        pytest.param("[away](../../roles/x/README.md#gone)", id="heading", marks=pytest.mark.full),
        pytest.param("![away](gone.svg)", id="picture", marks=pytest.mark.full),
    ],
)
def test_a_link_that_leads_nowhere_is_an_error_that_names_it(
    tree: Path, wrong: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (tree / DOCS / "start/a.md").write_text(PAGE.format(wrong))

    with pytest.raises(subprocess.CalledProcessError):
        site_of_docs.build(tree / "site/1.2.3", "1.2.3", tree)

    said = capfd.readouterr().err
    assert f"{DOCS}/start/a.md:3" in said
    assert "gone" in said
    assert not (tree / "site").exists()


@pytest.mark.full
def test_a_page_that_the_index_does_not_name_is_an_error(tree: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tree / DOCS / "start/forgotten.md").write_text(PAGE.format(""))

    with pytest.raises(subprocess.CalledProcessError):
        site_of_docs.build(tree / "site/1.2.3", "1.2.3", tree)

    assert "forgotten" in capfd.readouterr().err


def test_versions_lie_beside_each_other_and_the_first_page_leads_to_the_newest(tmp_path: Path) -> None:
    for version in ("1.9.0", "draft", "1.10.0", "latest", "1.9.0.old"):
        (tmp_path / version / "docs").mkdir(parents=True)
        (tmp_path / version / site_of_docs.FIRST).touch()
    (tmp_path / "other").mkdir()

    assert site_of_docs.list_versions(tmp_path) == ["1.10.0", "1.9.0", "draft"]

    assert json.loads((tmp_path / "versions.json").read_text()) == ["1.10.0", "1.9.0", "draft"]
    assert 'url=1.10.0/docs/README.html"' in (tmp_path / "index.html").read_text()


def test_a_folder_without_a_version_cannot_be_listed(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="has no folder of a version; unpack the archive"):
        site_of_docs.list_versions(tmp_path)


@pytest.mark.full
def test_the_same_pages_give_the_same_site(tmp_path: Path) -> None:
    made = [tmp_path / name for name in ("first", "second")]
    for folder in made:
        site_of_docs.build(folder, versions.current(), epoch=1_000_000_000)

    first, second = (
        {path.relative_to(top): path.read_bytes() for path in top.rglob("*") if path.is_file()} for top in made
    )
    assert first == second
    assert Path(f"{DOCS}/start/quickstart.html") in first
