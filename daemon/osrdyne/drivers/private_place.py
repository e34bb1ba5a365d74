"""A directory of a driver's own, and whether a place could have one. What is written there decides what we signal."""

from __future__ import annotations

import os
from pathlib import Path

from osrdyne.errors import DriverError


def check(path: Path, others: int) -> None:
    """Raise `DriverError` where a driver could not make or use the directory, as it does when it is opened.

    `others` are the bits of the mode that must not be set. Root may ask for another user, and is not refused a
    directory of that user's.
    """
    place = path.absolute()
    while not place.exists() and not place.is_symlink():
        place = place.parent
    if not place.is_dir():
        raise DriverError(f"cannot use directory {path}: {place} is not a directory; name another")
    status = place.stat()
    if place != path.absolute():
        if not os.access(place, os.W_OK | os.X_OK):
            raise DriverError(f"cannot make directory {path}: {place} may not be written; create it or name another")
    elif (status.st_uid != os.geteuid() and os.geteuid() != 0) or status.st_mode & others:
        raise DriverError(f"directory {path} must be ours alone: chown it to the daemon's user and chmod 700 it")


def make(path: Path, others: int) -> Path:
    """Make a directory that only we can enter. Raises `DriverError` where one has bits of its mode in `others`."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.stat()
    except OSError as error:
        raise DriverError(f"cannot use directory {path}: {error.strerror}; create it or name another") from error
    if status.st_uid != os.geteuid() or status.st_mode & others:
        raise DriverError(f"directory {path} must be ours alone: chown it to the daemon's user and chmod 700 it")
    return path
