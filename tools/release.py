"""`make release VERSION=1.2.3`: make all files of a release, in dist/1.2.3. It uploads nothing.

`BASE=IMAGE` names another base of the images, and `IMAGES=no` leaves the images out.

The tree must be clean. For a new version, it writes the version, the changelog's section and the row of
docs/releases.md, and commits them as `Release 1.2.3`. Then, and for a version whose commit is checked out, it makes the
files from that commit alone. Two runs give equal files, in whichever clone. docs/releasing.md has what a person does
before and after.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from flit_core.sdist import SdistBuilder  # type: ignore[import-untyped]
from flit_core.wheel import make_wheel_in  # type: ignore[import-untyped]

import bill_of_materials
import collection
import images
import packing
import site_of_docs
import steps
import versions
from osrdyne_runtime.console.streams import guarded

#: Lists the releases, the newest first: version, date and commit.
PAGE = "docs/releases.md"
_HEAD = "| version | date | commit |\n|---|---|---|\n"
_ROW = re.compile(r"^\| (\d[^ |]*) \| [\d-]+ \| .*?`([^`]+)`", re.MULTILINE)
_UNRELEASED = "## [Unreleased]\n"


@dataclass(frozen=True)
class Release:
    """What is made of one commit: `tree` is all of it, and `target` the folder for the files."""

    version: str
    #: When the commit was made, in seconds since 1970: the time of all that is in the files.
    epoch: int
    tree: Path
    target: Path
    #: The base of the images, or nothing for the one that the Dockerfiles name.
    base: str = ""


#: Makes some of the files.
Part = Callable[[Release], None]


def git(*words: str, root: Path = steps.ROOT) -> str:
    """Return what git says. Raises CalledProcessError."""
    return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def released(root: Path = steps.ROOT) -> dict[str, str]:
    """Return the releases that docs/releases.md names, the newest first, with what names their commit."""
    return dict(_ROW.findall((root / PAGE).read_text()))


def commit_of(version: str, root: Path = steps.ROOT) -> str:
    """Return the commit of a release: docs/releases.md has its hash, or its subject. Raises LookupError."""
    name = released(root)[version]
    if re.fullmatch(r"[0-9a-f]{40}", name):
        return name
    for line in git("log", "--format=%H %s", root=root).splitlines():
        commit, _, subject = line.partition(" ")
        if subject == name:
            return commit
    raise LookupError(f"no commit before this one is called {name!r}")


def prepare(version: str, today: str, root: Path = steps.ROOT) -> None:
    """Write a new version, its section of the changelog and its row of the releases, and commit them."""
    changelog, page = root / "CHANGELOG.md", root / PAGE
    text, rows = changelog.read_text(), page.read_text()
    if not _section(text, "Unreleased"):
        steps.stop("CHANGELOG.md has nothing below [Unreleased]; write what changes for users")
    latest = max(released(root), key=versions.number)
    if versions.number(version) <= versions.number(latest):
        steps.stop(f"{version} is not a version after {latest}, the latest of {PAGE}")
    changelog.write_text(text.replace(_UNRELEASED, f"{_UNRELEASED}\n## [{version}] - {today}\n", 1))
    page.write_text(rows.replace(_HEAD, f"{_HEAD}| {version} | {today} | `Release {version}` |\n", 1))
    versions.write(version, root)
    try:
        git("commit", "--quiet", "--all", "--message", f"Release {version}", root=root)
    except subprocess.CalledProcessError as error:
        git("reset", "--quiet", "--hard", root=root)  # the tree was clean before
        steps.stop(f"git refuses the commit: {error.stderr.strip()}; the tree is as it was")


def _section(changelog: str, name: str) -> str:
    """Return what stands below a heading of the changelog."""
    found = re.search(rf"^## \[{re.escape(name)}\].*\n((?:(?!## \[).*\n)*)", changelog, re.MULTILINE)
    return found[1].strip() if found else ""


def build(version: str, root: Path, parts: Sequence[Part], base: str = "") -> Path:
    """Make the files of the commit that is checked out; return their folder."""
    kept = root / "dist"
    kept.mkdir(exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix="part-", dir=kept))
    try:
        (part / "tree").mkdir()
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=root, check=True, capture_output=True).stdout
        subprocess.run(["tar", "--extract", "--directory", part / "tree"], input=archive, check=True)
        epoch = int(git("log", "-1", "--format=%ct", root=root))
        made = Release(version, epoch, part / "tree", part / "files", base)
        for make in parts:
            make(made)
        _sum(made)
        target = kept / version
        shutil.rmtree(target, ignore_errors=True)
        made.target.rename(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return target


def make_packages(release: Release) -> None:
    """Make wheels and sdists, in `packages`."""
    folder = release.target / "packages"
    folder.mkdir(parents=True)
    # Both builders read it: the time of all that is within.
    os.environ["SOURCE_DATE_EPOCH"] = str(release.epoch)
    for project in sorted(release.tree.glob("**/pyproject.toml")):
        if project.parent != release.tree:
            make_wheel_in(project, folder)
            SdistBuilder.from_ini_path(project).build(folder)


def make_bill_of_materials(release: Release) -> None:
    """Write what the packages consist of, as CycloneDX."""
    document = bill_of_materials.document(
        release.tree,
        release.target / "packages",
        release.version,
        dt.datetime.fromtimestamp(release.epoch, dt.UTC),
    )
    file = release.target / f"osrdyne-{release.version}.cdx.json"
    file.write_text(json.dumps(document, indent=2) + "\n")


def make_collection(release: Release) -> None:
    """Make the Ansible collection, beside the folder of the packages."""
    collection.build(release.tree, release.target, release.epoch)


def make_notes(release: Release) -> None:
    """Write the section of the changelog by itself."""
    section = _section((release.tree / "CHANGELOG.md").read_text(), release.version)
    (release.target / "notes.md").write_text(f"# osrdyne {release.version}\n\n{section}\n")


def make_site(release: Release) -> None:
    """Make the docs as a site: an archive of the folder of this version."""
    made = release.tree.parent / "site"
    site_of_docs.build(made / release.version, release.version, release.tree, release.epoch)
    archive = release.target / f"osrdyne-{release.version}-site.tar.gz"
    packing.pack(archive, made, [release.version], release.epoch)


def make_images(release: Release) -> None:
    """Make the images, in `images`."""
    images.make(
        images.Builder.of(release.tree, release.base),
        release.tree,
        release.target / "images",
        release.version,
        release.epoch,
    )


#: What a release consists of, in this order.
PARTS: tuple[Part, ...] = (
    make_packages,
    make_collection,
    make_bill_of_materials,
    make_notes,
    make_site,
    make_images,
)


def _sum(release: Release) -> None:
    """Write the checksum of each file, as `sha256sum --check` reads them."""
    files = sorted(file for file in release.target.rglob("*") if file.is_file())
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.relative_to(release.target)}\n" for file in files]
    (release.target / "SHA256SUMS").write_text("".join(lines))


def main(version: str, root: Path = steps.ROOT, *, parts: Sequence[Part] = PARTS, base: str = "") -> None:
    """Make a release, with another base of its images if one is named. Ends the script where it cannot be made."""
    if not versions.VERSION.fullmatch(version):
        steps.stop(f"{version!r} is not a version; give three numbers, as in make release VERSION=1.2.3")
    if git("status", "--porcelain", root=root):
        steps.stop("the tree is not clean: commit what belongs to the release, and put the rest away")
    known = version in released(root)
    if known and (commit := commit_of(version, root)) != git("rev-parse", "HEAD", root=root):
        steps.stop(f"{version} is released: to make its files again, check out its commit {commit}")
    if make_images in parts:
        images.Builder.of(root, base).check()
    if not known:
        prepare(version, f"{dt.datetime.now(dt.UTC):%Y-%m-%d}", root)
        print(f"release: committed as {git('rev-parse', '--short', 'HEAD', root=root)}, Release {version}")
    target = build(version, root, parts, base)
    count = len((target / "SHA256SUMS").read_text().splitlines())
    print(f"release: {count} files in {target.relative_to(root)}; nothing was uploaded, see docs/releasing.md")


def chosen(wanted: str) -> list[Part]:
    """Return the parts of a release, without images where `IMAGES` is `no`."""
    if wanted not in ("", "no"):
        steps.stop(f"IMAGES={wanted} is not known; IMAGES=no leaves the images out")
    return [part for part in PARTS if not (wanted and part is make_images)]


if __name__ == "__main__":
    with guarded("release"):
        main(sys.argv[1], parts=chosen(sys.argv[2]), base=sys.argv[3])
