"""The images of the Dockerfiles, built by a real engine once for each state of what goes into them.

They are kept as archives, which clusters and engines load.
"""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import steps
from testbed import docker, go_builds


@dataclass(frozen=True)
class Recipe:
    """One image: its name, its Dockerfile, and what is copied into it of this checkout, or of the tree of a commit."""

    name: str
    file: str
    parts: tuple[str, ...]
    tree: Path = steps.ROOT
    commit: str = ""
    #: What else of the packages is installed in it.
    more: str = ""
    #: What it is built on, where that is another of these.
    base: Recipe | None = None


#: What writes the bill of materials in an image, and the licence.
BILL = ("LICENSE", "tools/cyclonedx.py", "tools/image_bill.py")
DAEMON = Recipe("osrdyne.invalid/osrdyne:test", "Dockerfile", ("packages", "daemon", *BILL))
#: That of the pipeline, on a volume or in an object store; and with Spark.
PIPELINE = replace(DAEMON, name="osrdyne.invalid/osrdyne-pipeline:test", more="./packages/pipeline[s3]")
SPARK = Recipe(
    "osrdyne.invalid/osrdyne-spark:test",
    "packages/pipeline/spark/Dockerfile",
    DAEMON.parts,
    base=replace(DAEMON, name="osrdyne.invalid/osrdyne-spark-base:test", more="./packages/pipeline[spark]"),
)
AIRPORTS = Recipe("osrdyne.invalid/airports:test", "examples/airports/Dockerfile", ("packages", "examples", *BILL))
#: Archives of one image that are kept, for other checkouts on this machine.
KEPT = 3


def archives(*recipes: Recipe) -> list[Path]:
    """Return an archive of each image; what is not there yet is built, which takes a minute or two."""
    folder = go_builds.cache() / "images"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock, ExitStack() as stack:
        fcntl.flock(lock, fcntl.LOCK_EX)
        engine: docker.Docker | None = None
        found = []
        for recipe in recipes:
            name = recipe.name.partition("/")[2].partition(":")[0]
            target = folder / f"{name}-{_digest(recipe)}.tar"
            if not target.exists():
                print(f"docker: building {recipe.name}", file=sys.stderr, flush=True)
                engine = engine or stack.enter_context(docker.engine())
                _build(engine, recipe, target)
                for old in sorted(folder.glob(f"{name}-*.tar"), key=lambda file: file.stat().st_mtime)[:-KEPT]:
                    old.unlink()
            found.append(target)
        return found


def _build(engine: docker.Docker, recipe: Recipe, target: Path) -> None:
    if (base := recipe.base) is not None:
        engine.build(base.name, base.file, base.tree, base.more)
    engine.build(recipe.name, recipe.file, recipe.tree, recipe.more, base.name if base else None)
    part = target.with_suffix(".part")
    try:
        engine("save", "--output", str(part), recipe.name)
        part.rename(target)
    finally:
        part.unlink(missing_ok=True)


def _digest(recipe: Recipe) -> str:
    summed = hashlib.sha256(f"{Path(docker.python_root()).name}{recipe.commit}{recipe.more}".encode())
    if recipe.base is not None:
        summed.update(f"\0{_digest(recipe.base)}".encode())
    if recipe.commit:
        return summed.hexdigest()[:12]
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *recipe.parts]
    files = subprocess.run(listed, cwd=steps.ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    for name in sorted({*filter(None, files), recipe.file, ".dockerignore", "requirements.lock"}):
        if (path := steps.ROOT / name).is_file():
            summed.update(f"\0{name}\0".encode() + path.read_bytes())
    return summed.hexdigest()[:12]
