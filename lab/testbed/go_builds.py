"""Programs that are built from the Go module proxy, once a machine: `built("pulumi", recipe)` is a folder of them.

The folder is named after all that it is made from (go.mod, go.sum, our sources, options), so that a change never finds
an old result. It is made under another name and renamed: what a build cut short leaves is never taken for a whole one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from testbed.kubernetes import golang
from testbed.suite import only_in_test_all

#: Without symbols and debugging tables, which halves the programs.
FLAGS = "-ldflags=-s -w"


class BuildFailed(RuntimeError):
    """A program could not be built; the text says why."""


@dataclass(frozen=True)
class Recipe:
    """A Go module of ours, and what is made with it."""

    #: Has go.mod and go.sum, and sources if there are any of our own.
    module: Path
    #: Program -> its package.
    programs: dict[str, str]
    #: More options of the linker.
    stamps: tuple[str, ...] = ()
    #: Commands to run in the folder once the programs are there; the first word is one of them.
    commands: tuple[tuple[str, ...], ...] = ()
    #: Scripts to copy beside the programs: name -> module that has it, and path in it.
    scripts: dict[str, tuple[str, str]] = field(default_factory=dict)


def built(purpose: str, recipe: Recipe) -> Path:
    """Return the folder with what a recipe makes, in the cache's folder of that purpose; build unless it is there.

    Another process that builds the same is waited for. Raises BuildFailed and golang.GoMissing.
    """
    kept = cache() / purpose
    target = kept / f"{recipe.module.name}-{_digest(recipe)}"
    only_in_test_all(f"{purpose}, which is compiled,")
    if target.exists():
        return target
    kept.mkdir(parents=True, exist_ok=True)
    with (kept / f"{target.name}.lock").open("w") as lock:
        _take(lock, purpose, recipe.module.name)
        if not target.exists():
            part = Path(tempfile.mkdtemp(prefix="part-", dir=kept))
            try:
                _build(purpose, recipe, part)
                part.chmod(0o755)
                part.rename(target)
            finally:
                shutil.rmtree(part, ignore_errors=True)
    return target


def cache() -> Path:
    """Return the folder of everything that this project downloads and builds for its tests."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "osrdyne"


def _take(lock: TextIO, purpose: str, name: str) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _say(f"{purpose}: another process builds {name}; waiting for it")
        fcntl.flock(lock, fcntl.LOCK_EX)


def _build(purpose: str, recipe: Recipe, folder: Path) -> None:
    # Kept where the cluster's builds keep it: one toolchain is enough.
    go = golang.go(cache() / "kubernetes")
    options = f"{FLAGS} {' '.join(recipe.stamps)}"
    for number, (program, package) in enumerate(recipe.programs.items(), 1):
        what = f"{purpose}: building {program} ({number} of {len(recipe.programs)} of {recipe.module.name})"
        _say(what)
        started = time.monotonic()
        _run(["nice", "-n", "10", go, "build", options, "-o", str(folder / program), package], recipe.module)
        _say(f"{what}: {time.monotonic() - started:.0f} s")
    for name, (module, path) in recipe.scripts.items():
        source = _run([go, "list", "-m", "-f", "{{.Dir}}", module], recipe.module).strip()
        shutil.copyfile(Path(source, path), folder / name)
        (folder / name).chmod(0o755)
    for program, *arguments in recipe.commands:
        _run([str(folder / program), *arguments], folder)


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command,
        check=False,
        cwd=folder,
        env=golang.environment(),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        raise BuildFailed(f"{' '.join(command)} in {folder}: {done.stderr[-3000:]}")
    return done.stdout


def _digest(recipe: Recipe) -> str:
    made_from = (recipe.programs, recipe.stamps, recipe.commands, recipe.scripts, FLAGS, os.uname().machine)
    summed = hashlib.sha256(repr(made_from).encode())
    for path in sorted(path for path in recipe.module.rglob("*") if path.is_file()):
        summed.update(f"\0{path.relative_to(recipe.module)}\0".encode() + path.read_bytes())
    return summed.hexdigest()[:12]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
