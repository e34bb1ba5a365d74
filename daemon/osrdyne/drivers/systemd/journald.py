"""A worker's output in the journal: the command that shows it, and its last lines for an error.

Read only; where the journal cannot be read, a person can still run the command.
"""

from __future__ import annotations

import asyncio
import subprocess

from osrdyne.drivers.systemd.template import ManagerKind

#: Longest run of journalctl.
_TIMEOUT_SECONDS = 3.0

#: A worker's last output reaches the journal at about the time when systemd reports its end: tries, and pause between.
_TRIES, _PAUSE_SECONDS = 4, 0.1

#: Most runs of journalctl at once: a hundred groups that fail together must not start a hundred processes.
_MOST_PROCESSES = 2


class JournaldReader:
    """The journal as `command` (journalctl, without options) shows it."""

    def __init__(self, command: tuple[str, ...], manager: ManagerKind) -> None:
        self._command = command
        self._manager = manager
        self._slots = asyncio.Semaphore(_MOST_PROCESSES)

    def hint(self, unit: str) -> str:
        """Return the command that shows a person what a unit's workers wrote."""
        return f"journalctl {'--user ' if self._manager == 'user' else ''}-u {unit}"

    async def last_lines(self, unit: str, began_at: int, most: int) -> list[str]:
        """Return the last lines that a unit's worker wrote, at most so many; none when there are none to see.

        `began_at` is when its run began, in microseconds since 1970. systemd's own words about the unit do not count.
        """
        async with self._slots:
            for _ in range(_TRIES):
                found = await asyncio.to_thread(self._look, unit, began_at, most)
                if found is None:
                    return []
                if found.strip():
                    return found.splitlines()
                await asyncio.sleep(_PAUSE_SECONDS)
        return []

    def _look(self, unit: str, began_at: int, most: int) -> str | None:
        # Do not select by the id of the run: the journal has no id for a process that ended within a moment.
        field = "_SYSTEMD_USER_UNIT" if self._manager == "user" else "_SYSTEMD_UNIT"
        since = f"--since=@{began_at // 1_000_000}.{began_at % 1_000_000:06}"
        options = ("--quiet", "--no-pager", "--output=cat", f"--lines={most}", since, f"{field}={unit}")
        try:
            done = subprocess.run(
                [*self._command, *options],
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=_TIMEOUT_SECONDS,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return None if done.returncode else done.stdout.decode("utf-8", errors="replace")
