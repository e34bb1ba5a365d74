"""Who uses the workers of a pool and instance: each daemon holds a lock beside their records for its life.

Daemons share it. A program that ends workers asks whether it is alone.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from osrdyne.errors import DriverError

_FILE = "in-use"


class DirectoryLock:
    """A share of the lock in a directory. The kernel gives it back when the process ends."""

    def __init__(self, directory: Path, *, alone: bool = False) -> None:
        """Raises `DriverError` where the directory cannot be used, or another program has what `alone` asks for."""
        try:
            self._descriptor: int | None = os.open(directory / _FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise DriverError(f"cannot lock {directory}: {error.strerror}") from error
        if (alone and not self.is_alone()) or not self._lock(fcntl.LOCK_SH):
            self.close()
            raise DriverError(
                f"another osrdyne daemon or `osrdyne dev` runs workers in {directory.absolute()}; end it first"
            )

    def is_alone(self) -> bool:
        """Return whether no other program holds the lock now."""
        # The kernel gives up the share before it looks for the whole: two that ask at once both may hear no.
        alone = self._lock(fcntl.LOCK_EX)
        return self._lock(fcntl.LOCK_SH) and alone

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _lock(self, kind: int) -> bool:
        assert self._descriptor is not None
        try:
            fcntl.flock(self._descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
