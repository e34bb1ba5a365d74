"""What can go wrong on the bus. Every text says what happened and what to do."""

from __future__ import annotations

from osrdyne_protocol.errors import OsrdyneError


class MessagingError(OsrdyneError):
    """Something is wrong with a message on the bus."""


class InvalidTarget(MessagingError, ValueError):
    """A target has a name that no address can hold; nothing was sent."""
