"""Errors that callers in the daemon catch. The docstring is the message where none is given."""

from __future__ import annotations

from osrdyne_protocol.errors import OsrdyneError


class DaemonError(OsrdyneError):
    """Something the daemon needs is wrong."""


class DriverError(DaemonError):
    """The engine refused or failed to start, stop or list a worker group."""

    #: It did not answer at all, which says nothing about the group.
    away = False


class EngineAway(DriverError):
    """The engine cannot be reached, or does not answer."""

    away = True


def is_away(error: BaseException | None) -> bool:
    """Return whether an error, or one that it came of, is that of an engine that does not answer."""
    while error is not None:
        if isinstance(error, TimeoutError) or (isinstance(error, DriverError) and error.away):
            return True
        error = error.__cause__
    return False


class ManagementError(DaemonError):
    """The broker's management API is away, refuses the call, or sends an unreadable answer."""


class SessionEnded(DaemonError):
    """The session ended; a new one must be begun."""
