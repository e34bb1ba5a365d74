"""Whether files have changed, for what is made from them and costs too much to make at each use."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


class FileChanges:
    """Looks at some files. What matters is when, where and how long they were written; their content is not read."""

    def __init__(self, files: Iterable[str | Path]) -> None:
        self._files = [Path(file) for file in files]
        self._seen = self._states()

    def found(self) -> bool:
        """Return whether a file was written, replaced, made or removed since the last look."""
        before, self._seen = self._seen, self._states()
        return before != self._seen

    def _states(self) -> list[tuple[int, int, int] | None]:
        return [_state(file) for file in self._files]


def _state(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
