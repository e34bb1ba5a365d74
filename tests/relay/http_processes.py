"""A node as a process of its own: `osrdyne relay serve`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any, Self

import psutil

import steps
from osrdyne_relay import RelaySettings
from testbed.waiting import PATIENCE_SECONDS, until_in_thread


class NodeProcess:
    """The process, and what it logged."""

    def __init__(self, settings: RelaySettings, directory: Path, *words: str) -> None:
        self._file, self._log = directory / "relay.toml", directory / "node.log"
        self._file.write_text(toml({"relay": json.loads(settings.model_dump_json(exclude_none=True))}))
        self._words = [str(steps.BIN / "osrdyne"), "relay", "serve", "--json", "--settings", str(self._file), *words]

    def __enter__(self) -> Self:
        with self._log.open("w") as log:
            self.process = subprocess.Popen(self._words, env={"PATH": os.environ["PATH"]}, stderr=log)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._log.read_text().splitlines(keepends=True) if line.endswith("\n")]

    async def url(self) -> str:
        """Its address, once it listens."""

        def found() -> str | None:
            assert self.process.poll() is None, self._log.read_text()
            return next((line["address"] for line in self.lines() if "address" in line), None)

        return await until_in_thread(found)

    def memory(self) -> int:
        """Bytes that are resident."""
        return int(psutil.Process(self.process.pid).memory_info().rss)

    def end(self) -> int:
        """Have it stop; return its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_SECONDS)


def toml(tables: dict[str, Any], path: str = "") -> str:
    """Tables as TOML, in which JSON stands for plain values."""
    lines = []
    for name, value in tables.items():
        where = f"{path}.{name}" if path else name
        if isinstance(value, dict):
            plain = {key: item for key, item in value.items() if not isinstance(item, dict)}
            lines += [f"[{where}]", *(f"{key} = {json.dumps(item)}" for key, item in plain.items())]
            lines.append(toml({key: item for key, item in value.items() if isinstance(item, dict)}, where))
    return "\n".join(lines)
