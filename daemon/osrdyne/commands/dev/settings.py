"""The settings of a pool with what `osrdyne dev` adds: the daemon restarts each worker when these change."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from osrdyne.settings.daemon import load
from osrdyne_pool import settings_file
from osrdyne_runtime.console.output import CannotAsk
from osrdyne_runtime.settings_text import to_toml

#: Seconds in which a worker that is restarted has to end; else it is killed, and its requests go back to the queue.
STOP_GRACE_SECONDS = 10
#: Variable of a worker with the state of the files: another one makes another template, which restarts workers.
SOURCES = "OSRDYNE_DEV_SOURCES"


def write(source: Path, target: Path, worker: str, state: str) -> None:
    """Write the settings of `source` for workers of these files. Raises SettingsError, CannotAsk and OSError."""
    if load(source).driver.kind != "subprocess":  # which names this file in an error, and not the one that is written
        raise CannotAsk(f"{source}: driver.kind is not 'subprocess', and this command runs workers as processes only")
    tables = settings_file.read(source)
    # Variables may have what the file has not.
    template = tables.setdefault("driver", {}).setdefault("template", {})
    command = template.get("command", ())
    program, *rest = command if worker in command else ("python", worker)
    # The Python that has this package, whether or not its environment is active.
    template["command"] = [sys.executable if program in ("python", "python3") else program, *rest]
    template["environment"] = {"PYTHONUNBUFFERED": "1", **template.get("environment", {}), SOURCES: state}
    template.setdefault("stop_grace", STOP_GRACE_SECONDS)
    part = target.with_suffix(".part")
    part.write_text(to_toml(tables), encoding="utf-8")
    os.replace(part, target)
