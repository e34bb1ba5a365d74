"""Whether the files of a worker have changed: its program, and all other Python below its folder."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path


def state(folder: Path, *others: Path) -> str:
    """Return a text that is another one when a file has changed, come or gone."""
    seen = sorted((str(file), _stamp(file)) for file in (*_modules(folder), *others))
    return hashlib.sha256(repr(seen).encode()).hexdigest()[:16]


def _modules(folder: Path) -> Iterator[Path]:
    for where, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not _is_foreign(Path(where, name))]
        yield from (Path(where, name) for name in files if name.endswith(".py"))


def _is_foreign(folder: Path) -> bool:
    """Whether it holds what is not the worker's: hidden files, or an environment with packages.

    A folder that may not be entered counts as one without.
    """
    return folder.name.startswith((".", "__")) or os.path.exists(folder / "pyvenv.cfg")


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
