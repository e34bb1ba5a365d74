"""The images of a release: two builds give equal files, which an engine loads and runs."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import images
import steps
from testbed import docker

pytestmark = [pytest.mark.full, pytest.mark.timeout(2400), pytest.mark.xdist_group("images")]

VERSION, EPOCH = "98.7.6", 1_700_000_000


@pytest.fixture(scope="module")
def engine() -> Iterator[docker.Docker]:
    with docker.engine() as engine:
        yield engine


def made(engine: docker.Docker, folder: Path) -> Path:
    """Make the images of a copy of the tree."""
    for name in steps.tracked():
        (folder / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(steps.ROOT / name, folder / "tree" / name)
    builder = images.Builder.of(folder / "tree", engine.python(), environment=engine.environment)
    builder.check()
    images.make(builder, folder / "tree", folder / "images", VERSION, EPOCH)
    return folder / "images"


def sums(folder: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}


def test_two_builds_give_equal_files_which_an_engine_runs(engine: docker.Docker, tmp_path: Path) -> None:
    first, second = (made(engine, tmp_path / name) for name in ("first", "second"))

    names = {f"{image.name}-{VERSION}{end}" for image in images.IMAGES for end in (".tar.gz", ".cdx.json")}
    assert names == sums(first).keys()
    assert sums(first) == sums(second)
    # Nothing of the builds is left in the engine
    assert engine("image", "ls", "--quiet", "osrdyne-release").split() == []
    for image in images.IMAGES:
        name = f"{image.name}:{VERSION}"
        said = engine("load", "--input", str(first / f"{image.name}-{VERSION}.tar.gz"))
        assert name in said
        hardened = ("run", "--rm", "--read-only", "--cap-drop", "ALL", "--network", "none", "--entrypoint")
        bill = engine(*hardened, "cat", name, f"/{image.bill}")
        assert bill == (first / f"{image.name}-{VERSION}.cdx.json").read_text()
        # Modules are compiled, and their time does not matter
        code = "import osrdyne_worker as worker; print(open(worker.__cached__, 'rb').read(8))"
        assert r"\x01\x00\x00\x00" in engine(*hardened, "python3", name, "-c", code)
        engine("image", "rm", "--force", name)


def test_a_base_that_is_nowhere_is_said_with_what_to_do(engine: docker.Docker) -> None:
    builder = images.Builder("osrdyne.invalid/none:1", environment=engine.environment)
    with pytest.raises(SystemExit, match=r"base image osrdyne\.invalid/none:1 is not there.*BASE=IMAGE"):
        builder.check()
