"""The settings on disk: read at the start, and checked for changes as long as the daemon runs.

Compares the contents of the settings file and of the templates that it names, since a mounted ConfigMap changes by a
moved link, and an editor may write a file in place. Decides when a change is complete, and keeps the settings in force
while the files on disk cannot be used. Never touches the files with credentials: these are read at each use.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from osrdyne.settings.daemon import DaemonSettings, load
from osrdyne_protocol.errors import OsrdyneError

log = logging.getLogger(__name__)

#: Seconds between two checks. A change counts once two checks found the same: at the first it may be incomplete.
CHECK_SECONDS = 1.0

Made = TypeVar("Made")

#: Hash of each file, by path; None for one that cannot be read.
Contents = dict[Path, bytes | None]


class SettingsFile:
    """One daemon's settings file. `settings` are those in force."""

    def __init__(self, path: Path) -> None:
        """Raises `SettingsError` for invalid settings."""
        self._path = path
        # Read before parsing: a write meanwhile is a change.
        now = _contents([path])
        self.settings = load(path)
        self._in_force = now | _contents(self.settings.driver.files())
        #: Why the settings on disk are not in force; None when they are.
        self.error: str | None = None

    async def changed(self, make: Callable[[DaemonSettings], Made]) -> Made:
        """Wait until changed settings are on disk from which `make` can build something; return the result.

        Invalid settings are logged once, and tried again at each check: they may need a file that does not exist yet.
        """
        before = self._in_force
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            now = _contents(self._in_force)
            if now == self._in_force:
                self._usable()
            elif now == before:
                try:
                    if (made := self._taken(now, make)) is not None:
                        return made
                except OsrdyneError as error:
                    self._unusable(str(error))
                except Exception as error:  # noqa: BLE001 - no content of a file may end a running daemon
                    self._unusable(f"{type(error).__name__}: {error}", error)
            before = now

    def _taken(self, now: Contents, make: Callable[[DaemonSettings], Made]) -> Made | None:
        """Put the settings on disk in force; return None where they mean the same as before."""
        settings = load(self._path)
        templates = _contents(settings.driver.files())
        same = settings == self.settings and all(self._in_force.get(file) == had for file, had in templates.items())
        made = None if same else make(settings)
        self.settings, self._in_force = settings, {self._path: now[self._path], **templates}
        self._usable()
        return made

    def _usable(self) -> None:
        if self.error is not None:
            self.error = None
            log.info("the settings can be used again", extra={"file": str(self._path)})

    def _unusable(self, reason: str, unexpected: Exception | None = None) -> None:
        if self.error != reason:
            self.error = reason
            log.error(
                "changed settings cannot be used; going on with those before",
                extra={"file": str(self._path), "reason": reason},
                exc_info=unexpected,
            )


def changes(before: DaemonSettings, after: DaemonSettings) -> list[str]:
    """Return the names of the settings that differ, for the log; never their values."""
    old, new = before.model_dump(), after.model_dump()
    return [
        f"{table}.{name}"
        for table in new
        for name in sorted({*old[table], *new[table]})
        if old[table].get(name) != new[table].get(name)
    ]


def _contents(files: Iterable[Path]) -> Contents:
    return {file: _hash(file) for file in files}


def _hash(file: Path) -> bytes | None:
    try:
        return hashlib.sha256(file.read_bytes()).digest()
    except OSError:
        return None
