"""What the workers of the driver `subprocess` write, line by line as their logs grow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from osrdyne_protocol import foreign_json, names

#: Begins the lines in a log that are not the worker's.
_HEAD = b'{"osrdyne": "worker"'
#: Most bytes of one line; a longer one is shown in parts.
_MOST_LINE_BYTES = 65_536


def directory(state: Path, logs: Path | None, pool: str, instance: str) -> Path:
    """Return where the driver keeps the logs of a pool: below `logs` where the settings name it, or below `state`."""
    home = names.engine_name(pool, instance, "")
    return state / home / "logs" if logs is None else logs / home


class Output:
    """Logs in a directory, which need not be there yet. What they hold already is not shown."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        #: How many bytes of each log have been shown.
        self._shown = {log: log.stat().st_size for log in folder.glob("*.log")}

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield the lines that came since the last call, each behind its key."""
        for log in sorted(self._folder.glob("*.log")):
            try:
                yield from self._new_lines(log)
            except OSError:  # the driver has just removed it
                self._shown.pop(log, None)

    def _new_lines(self, log: Path) -> Iterator[tuple[str, str]]:
        begin = self._shown.get(log, 0)
        with log.open("rb") as file:
            heading = file.readline(_MOST_LINE_BYTES)
            if file.seek(0, 2) < begin:  # it was full, and was emptied
                begin = 0
            file.seek(begin)
            while line := file.readline(_MOST_LINE_BYTES):
                if not line.endswith(b"\n") and len(line) < _MOST_LINE_BYTES:
                    break
                begin += len(line)
                self._shown[log] = begin
                if not line.startswith(_HEAD):
                    yield _key(heading), line.decode(errors="replace").rstrip("\n")


def _key(heading: bytes) -> str:
    try:
        return str(foreign_json.read(heading)["key"])
    except (ValueError, KeyError, TypeError):
        return "?"
