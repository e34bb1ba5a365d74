"""Errors that callers in the daemon catch. The docstring is the message where none is given."""

from __future__ import annotations

from osrdyne_protocol.errors import OsrdyneError


class DaemonError(OsrdyneError):
    """Something the daemon needs is wrong."""


class DriverError(DaemonError):
    """The engine refused or failed to start, stop or list a worker group."""


class ManagementError(DaemonError):
    """The broker's management API is away, refuses the call, or sends an unreadable answer."""


class SessionEnded(DaemonError):
    """The session ended; a new one must be begun."""
