"""`make release`: what it makes of a commit, that it makes the same again, and what it refuses."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from flit_core.wheel import make_wheel_in  # type: ignore[import-untyped]

import release
import setup
import steps
import versions

#: Of no real release.
VERSION = "98.7.6"
CHANGED = "- Something changed."
FIRST = "## [0.1.0] - 2026-11-27\n\n- It began.\n"
PERSON = ("-c", "user.name=person", "-c", "user.email=person@example.org")


WITHOUT_IMAGES = release.chosen("no")
#: What no package is made of, and no version stands in.
LEFT_OUT = ("tests/", "lab/", "playbooks/", "examples/")


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with what the tree has now, as far as a release needs it, before its second release."""
    root = tmp_path_factory.mktemp("origin")
    for name in steps.tracked():
        if not name.startswith(LEFT_OUT):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(steps.ROOT / name, root / name)
    (root / "CHANGELOG.md").write_text(f"# Changelog\n\n## [Unreleased]\n\n{CHANGED}\n\n{FIRST}")
    page = root / release.PAGE
    head = page.read_text().partition("|---|")[0]
    page.write_text(f"{head}|---|---|---|\n| 0.1.0 | 2026-11-27 | `{'0' * 40}` |\n")
    release.git("init", "--quiet", root=root)
    release.git("add", "--all", root=root)
    release.git(*PERSON, "commit", "--quiet", "--message", "Begin", root=root)
    return root


@pytest.fixture
def clone(origin: Path, tmp_path: Path) -> Path:
    """A clone of a person."""
    release.git("clone", "--quiet", str(origin), str(tmp_path / "clone"), root=tmp_path)
    for setting in PERSON[1::2]:
        release.git("config", *setting.split("="), root=tmp_path / "clone")
    return tmp_path / "clone"


def made(root: Path) -> Path:
    """Make the release, in a process of its own."""
    # The site needs the pages that are left out; test_site makes it. Images need an engine; test_images makes them.
    less = "[part for part in release.PARTS if part not in (release.make_site, release.make_images)]"
    code = f"import release, pathlib; release.main({VERSION!r}, pathlib.Path({str(root)!r}), parts={less})"
    subprocess.run([sys.executable, "-c", code], cwd=steps.ROOT, check=True, env=steps.environment(PYTHONPATH="tools"))
    return root / "dist" / VERSION


def test_a_release_is_one_commit_and_its_files_are_made_again_byte_by_byte_in_another_clone(
    clone: Path, tmp_path: Path
) -> None:
    files = made(clone)

    # The commit
    assert release.git("log", "-1", "--format=%s", root=clone) == f"Release {VERSION}"
    assert release.git("status", "--porcelain", root=clone) == ""
    assert release.commit_of(VERSION, clone) == release.git("rev-parse", "HEAD", root=clone)
    assert next(iter(release.released(clone))) == VERSION
    assert versions.current(clone) == VERSION
    assert (clone / "CHANGELOG.md").read_text().startswith("# Changelog\n\n## [Unreleased]\n\n## [98.7.6] - 20")
    assert (files / "notes.md").read_text() == f"# osrdyne {VERSION}\n\n{CHANGED}\n"
    # The files
    lines = (files / "SHA256SUMS").read_text().splitlines()
    sums = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    assert sums == {
        str(file.relative_to(files)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files.rglob("*")
        if file.is_file() and file.name != "SHA256SUMS"
    }
    assert len(setup.packages()) * 2 + 3 == len(sums)
    # The same again, elsewhere and later
    other = tmp_path / "other"
    release.git("clone", "--quiet", str(clone), str(other), root=tmp_path)
    (other / "daemon/osrdyne/cli.py").touch()
    assert (made(other) / "SHA256SUMS").read_text() == (files / "SHA256SUMS").read_text()
    look_at_packages(files / "packages", tmp_path)
    look_at_bill(json.loads((files / f"osrdyne-{VERSION}.cdx.json").read_text()), files / "packages")


def look_at_packages(folder: Path, tmp_path: Path) -> None:
    """A wheel holds the licence and types, and an sdist all that the wheel is made of."""
    for wheel in folder.glob("*.whl"):
        name = wheel.name.split("-")[0]
        held = set(zipfile.ZipFile(wheel).namelist())
        assert {f"{name}/py.typed", f"{name}-{VERSION}.dist-info/licenses/LICENSE"} <= held
        sdist = folder / f"{name}-{VERSION}.tar.gz"
        subprocess.run(["tar", "--extract", "--gzip", "--file", sdist, "--directory", tmp_path], check=True)
        again = make_wheel_in(tmp_path / f"{name}-{VERSION}/pyproject.toml", tmp_path).file
        assert set(zipfile.ZipFile(again).namelist()) == held


def look_at_bill(bill: dict[str, object], folder: Path) -> None:
    """The bill of materials names our wheels, and all that they bring, down to the last."""
    components = {component["bom-ref"]: component for component in bill["components"]}  # type: ignore[attr-defined]
    needs = {dependency["ref"]: dependency["dependsOn"] for dependency in bill["dependencies"]}  # type: ignore[attr-defined]
    assert {"release", *components} == needs.keys()
    reached, waiting = set(), ["release"]
    while waiting:
        reached.add(one := waiting.pop())
        waiting += set(needs[one]) - reached
    assert reached == needs.keys()
    names = {component["name"] for component in components.values()}
    assert {"osrdyne", "pika", "aiohttp", "yarl", "pydantic-core", "python-qpid-proton", "py4j"} <= names
    assert not {"pytest", "ruff", "ansible", "flit-core"} & names
    for wheel in folder.glob("*.whl"):
        own = components[f"pkg:pypi/{wheel.name.split('-')[0].replace('_', '-')}@{VERSION}"]
        assert own["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(wheel.read_bytes()).hexdigest()}]


@pytest.mark.parametrize("version", ["", "1.2", "v1.2.3", "1.2.3.4"])
def test_what_is_not_a_version_is_refused(version: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="is not a version; give three numbers"):
        release.main(version, tmp_path)


def test_a_tree_that_is_not_clean_is_refused(clone: Path) -> None:
    (clone / "forgotten").touch()
    with pytest.raises(SystemExit, match="the tree is not clean"):
        release.main(VERSION, clone, parts=WITHOUT_IMAGES)


def test_a_version_that_is_not_after_the_latest_is_refused(clone: Path) -> None:
    with pytest.raises(SystemExit, match=r"0\.0\.9 is not a version after 0\.1\.0"):
        release.main("0.0.9", clone, parts=WITHOUT_IMAGES)


def test_a_release_without_a_change_is_refused(clone: Path) -> None:
    (clone / "CHANGELOG.md").write_text(f"# Changelog\n\n## [Unreleased]\n\n{FIRST}")
    release.git("commit", "--quiet", "--all", "--message", "Take it back", root=clone)
    with pytest.raises(SystemExit, match="has nothing below"):
        release.main(VERSION, clone, parts=WITHOUT_IMAGES)


def test_a_commit_that_git_refuses_leaves_the_tree_as_it_was(clone: Path) -> None:
    hook = clone / ".git/hooks/pre-commit"
    hook.write_text("#!/bin/sh\necho not today >&2\nexit 1\n")
    hook.chmod(0o755)
    with pytest.raises(SystemExit, match="git refuses the commit: not today; the tree is as it was"):
        release.prepare(VERSION, "2026-11-28", clone)
    assert release.git("status", "--porcelain", root=clone) == ""


def test_the_files_of_a_release_are_made_of_its_own_commit_only(clone: Path) -> None:
    release.prepare(VERSION, "2026-11-28", clone)
    commit = release.git("rev-parse", "HEAD", root=clone)
    release.git("commit", "--quiet", "--allow-empty", "--message", "Go on", root=clone)
    with pytest.raises(SystemExit, match=f"check out its commit {commit}"):
        release.main(VERSION, clone, parts=WITHOUT_IMAGES)


def test_the_page_of_releases_names_commits_of_this_repository() -> None:
    listed = release.released()

    assert [*listed] == sorted(listed, key=versions.number, reverse=True)
    assert "0.1.0" in listed
