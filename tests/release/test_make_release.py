"""docs/releasing.md: `make release` with all its files, in two clones; the images run, and the steps after it do."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import images
import release
import setup
import steps
from testbed import docker

pytestmark = [pytest.mark.full, pytest.mark.timeout(2400), pytest.mark.xdist_group("images")]

PAGE = Path(steps.ROOT, "docs/releasing.md").read_text()
#: The version of the page's examples, and one of no real release.
EXAMPLE, VERSION = "1.2.3", "98.7.6"
MAKE, PUBLISH, LIST = (
    block.replace(EXAMPLE, VERSION) for block in re.findall(r"^ *```sh\n(.*?)^ *```", PAGE, re.MULTILINE | re.DOTALL)
)


@pytest.fixture(scope="module")
def engine() -> Iterator[docker.Docker]:
    with docker.engine() as engine:
        yield engine


@dataclass(frozen=True)
class Clone:
    """A clone of a person, and the shell in it."""

    root: Path
    variables: dict[str, str]
    umask: int

    @classmethod
    def of(cls, origin: Path, root: Path, engine: docker.Docker, umask: int) -> Clone:
        """Clone a repository under a umask, which decides who may read the files."""
        subprocess.run(["git", "clone", "--quiet", str(origin), str(root)], check=True, umask=umask)
        for name, value in (("user.name", "person"), ("user.email", "person@example.org")):
            release.git("config", name, value, root=root)
        # The tests may have been started by make, which speaks to its children by these.
        of_make = {"MAKEFLAGS", "MFLAGS", "MAKELEVEL", "VIRTUAL_ENV"}
        variables = {name: value for name, value in engine.environment.items() if name not in of_make}
        return cls(root, {**variables, "BASE": engine.python()}, umask)

    def run(self, commands: str, **variables: str) -> str:
        done = subprocess.run(
            ["bash", "-e", "-c", commands],
            cwd=self.root,
            env={**self.variables, **variables},
            umask=self.umask,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    @property
    def files(self) -> Path:
        return self.root / "dist" / VERSION


@pytest.fixture(scope="module")
def clones(tmp_path_factory: pytest.TempPathFactory, engine: docker.Docker) -> Iterator[tuple[Clone, Clone]]:
    """Two clones of what is there now, in which the same release was made; files of the second are its owner's only.

    They are large, and not kept.
    """
    place = tmp_path_factory.mktemp("release")
    first = Clone.of(steps.ROOT, place / "first", engine, 0o022)
    for name in release.git("ls-files", root=first.root).splitlines():
        (first.root / name).unlink()
    for name in steps.tracked():
        (first.root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(steps.ROOT / name, first.root / name)
    if release.git("status", "--porcelain", root=first.root):
        release.git("add", "--all", root=first.root)
        release.git("commit", "--quiet", "--message", "Take what is not committed yet", root=first.root)
    assert "nothing was uploaded" in first.run(MAKE)
    second = Clone.of(first.root, place / "second", engine, 0o077)
    second.run(MAKE)
    yield first, second
    shutil.rmtree(place)


def test_make_release_makes_equal_files_in_two_clones_of_different_umasks(clones: tuple[Clone, Clone]) -> None:
    first, second = clones

    assert release.git("log", "-1", "--format=%s", root=first.root) == f"Release {VERSION}"
    for clone in clones:
        assert release.git("status", "--porcelain", root=clone.root) == ""
    assert (second.files / "SHA256SUMS").read_text() == (first.files / "SHA256SUMS").read_text()
    # The checksums are of all files, and right
    checked = first.run(f"cd {first.files}; sha256sum --check --strict SHA256SUMS")
    named = {line.removesuffix(": OK") for line in checked.splitlines()}
    assert named == {
        str(file.relative_to(first.files))
        for file in first.files.rglob("*")
        if file.is_file() and file.name != "SHA256SUMS"
    }
    # The files are those of the page
    listed = {re.sub(r"\*", "[^/]+", name) for name in re.findall(r"`([^`]+)`", files_of_the_page())}
    assert {name for name in named if not any(re.fullmatch(known, name) for known in listed)} == set()
    assert named >= {
        f"images/{image.name}-{VERSION}{end}" for image in images.IMAGES for end in (".tar.gz", ".cdx.json")
    }
    assert len([name for name in named if name.startswith("packages/")]) == 2 * len(setup.packages())


def files_of_the_page() -> str:
    """Return the first column of the page's table of files."""
    table = PAGE.partition("## The files")[2].replace(EXAMPLE, VERSION)
    return "\n".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| `"))


def test_the_images_of_a_release_run_as_files_of_an_engine(clones: tuple[Clone, Clone], engine: docker.Docker) -> None:
    folder = clones[0].files / "images"

    # Nothing of the builds is left in the engine
    assert engine("image", "ls", "--quiet", "osrdyne-release").split() == []
    for image in images.IMAGES:
        name = f"{image.name}:{VERSION}"
        said = engine("load", "--input", str(folder / f"{image.name}-{VERSION}.tar.gz"))
        assert name in said
        hardened = ("run", "--rm", "--read-only", "--cap-drop", "ALL", "--network", "none", "--entrypoint")
        bill = engine(*hardened, "cat", name, f"/{image.bill}")
        assert bill == (folder / f"{image.name}-{VERSION}.cdx.json").read_text()
        assert json.loads(bill)["metadata"]["component"]["name"] == image.name
        # Modules are compiled, and their time does not matter
        code = "import osrdyne_worker as worker; print(open(worker.__cached__, 'rb').read(8))"
        assert r"\x01\x00\x00\x00" in engine(*hardened, "python3", name, "-c", code)
        engine("image", "rm", "--force", name)


def test_the_steps_after_make_release_find_what_they_need(clones: tuple[Clone, Clone], tmp_path: Path) -> None:
    clone = clones[0]

    # uv reads each package, and would upload it; there is no index here that takes it
    said = clone.run(f"{PUBLISH.strip()} --dry-run", UV_PUBLISH_URL="http://127.0.0.1:1/", UV_PUBLISH_TOKEN="none")
    assert f"{2 * len(setup.packages())} files" in said
    # The site is beside another version
    (tmp_path / "1.0.0/docs").mkdir(parents=True)
    (tmp_path / "1.0.0/docs/README.html").touch()
    clone.run(f"tar --extract --gzip --file {clone.files}/osrdyne-{VERSION}-site.tar.gz --directory {tmp_path}")
    clone.run(LIST.replace("FOLDER", str(tmp_path)))
    assert json.loads((tmp_path / "versions.json").read_text()) == [VERSION, "1.0.0"]
    assert os.access(tmp_path / VERSION / "docs/README.html", os.R_OK)


def test_a_base_that_is_nowhere_is_said_with_what_to_do(engine: docker.Docker) -> None:
    builder = images.Builder("osrdyne.invalid/none:1", environment=engine.environment)
    with pytest.raises(SystemExit, match=r"base image osrdyne\.invalid/none:1 is not there.*BASE=IMAGE"):
        builder.check()
