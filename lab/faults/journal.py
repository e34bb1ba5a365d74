"""The journal of a client: a line on disk for each step of each request, before the step is taken or once it is known.

A line is written with one call of the system, so that a client that is killed has written it whole or not at all.
Times are the machine's monotonic clock, which all processes share.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any


class Journal:
    """Written by one client."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def sent(self, request: str, key: str, *, replies: bool) -> None:
        """To be written before the first publish. `replies`: whether an answer is wanted."""
        self._write("sent", request, key=key, replies=replies)

    def named(self, request: str, correlation_id: str) -> None:
        """The correlation id under which its answers come, where that is another than its own name."""
        self._write("named", request, correlation_id=correlation_id)

    def confirmed(self, request: str) -> None:
        self._write("confirmed", request)

    def refused(self, request: str, why: str) -> None:
        """The client knows that the request is not with the broker, or does not know that it is."""
        self._write("refused", request, why=why)

    def answered(self, correlation_id: str | None, status: str) -> None:
        self._write("answered", "", correlation_id=correlation_id, status=status)

    def _write(self, step: str, request: str, **more: Any) -> None:
        line = {"at": time.monotonic(), "step": step, "request": request, **more}
        os.write(self._file, json.dumps(line).encode() + b"\n")


class Journals:
    """All journals of a directory, read on where the last reading ended."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: dict[Path, int] = {}

    def news(self) -> list[dict[str, Any]]:
        """Return the steps that were written since the last call, journal by journal."""
        steps = []
        for path in sorted(self._directory.glob("*.journal")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._read[path] = self._read.get(path, 0) + len(whole)
            steps += [{"client": path.stem, **json.loads(line)} for line in whole.splitlines()]
        return steps
