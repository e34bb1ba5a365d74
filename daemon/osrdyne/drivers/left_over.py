"""Workers that a daemon of an earlier version started under other names. This daemon neither lists nor stops them."""

from __future__ import annotations

import logging
from collections.abc import Iterable

log = logging.getLogger(__name__)

#: Names in one message.
_MOST = 20


class LeftOver:
    """Says once of each that it is there, and how a person ends it."""

    def __init__(self, command: str) -> None:
        """`command` ends workers, with their names behind it."""
        self._command = command
        self._said: set[str] = set()

    def report(self, names: Iterable[str]) -> None:
        """Log those that are new."""
        new = sorted(set(names) - self._said)
        self._said.update(new)
        if new:
            some = " ".join(new[:_MOST])
            log.warning(
                "workers of an earlier version run under other names: they take requests, and this daemon never stops "
                "them; end them",
                extra={"count": len(new), "command": f"{self._command} {some}{' ...' if len(new) > _MOST else ''}"},
            )
