"""Errors that callers in the daemon catch. The docstring is the message where none is given."""

from __future__ import annotations


class DaemonError(Exception):
    """Something the daemon needs is wrong."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or type(self).__doc__)


class DriverError(DaemonError):
    """The engine refused or failed to start, stop or list a worker group."""


class ManagementError(DaemonError):
    """The broker's management API is away, refuses the call, or sends an unreadable answer."""
