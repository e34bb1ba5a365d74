"""What ends a worker."""

from __future__ import annotations

from osrdyne_protocol.errors import OsrdyneError


class HandlerHung(OsrdyneError):
    """A handler held a request for longer than the broker allows, and only the end of its process can end it."""
