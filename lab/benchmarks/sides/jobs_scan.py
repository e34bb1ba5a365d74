"""Redo that casts all due jobs of a database to a broker that takes every cast at once, and says what that took."""

from __future__ import annotations

import concurrent.futures
import json
import sys
import time
from pathlib import Path
from typing import Any

from osrdyne_jobs import Redo, RedoSettings, engine_for


class TakesAll:
    """Stands in for a client of the pool: every cast is accepted at once."""

    def __init__(self) -> None:
        self.casts = 0

    def start_cast(self, key: str, body: bytes, *, timeout: float | None = None) -> Any:
        self.casts += 1
        taken: concurrent.futures.Future[None] = concurrent.futures.Future()
        taken.set_result(None)
        return taken

    #: No job is cast a second time here.
    submit = start_cast


def main() -> None:
    options = json.load(sys.stdin)
    caster, scans_seconds = TakesAll(), []
    # No job is due a second time meanwhile.
    settings = RedoSettings(pause=86_400.0)
    redo = Redo(engine_for(options["database"]), caster, settings, name="bench")
    while caster.casts < options["due"]:
        began = time.perf_counter()
        if redo.scan().casts == 0:
            raise SystemExit(f"only {caster.casts} of {options['due']} jobs were cast")
        scans_seconds.append(time.perf_counter() - began)
    # Not getrusage: its maximum begins with that of the process which started this one.
    status = Path("/proc/self/status").read_text()
    memory = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    print(json.dumps({"memory_mb": memory, "seconds": sum(scans_seconds), "longest": max(scans_seconds)}))


if __name__ == "__main__":
    main()
