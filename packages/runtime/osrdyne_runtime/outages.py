"""What a program logs about something that it needs and that does not work: the same three kinds of lines everywhere.

- `X cannot be used; trying again`, when it begins,
- `X still cannot be used; trying again`, once a minute while it lasts, and at once for a new reason,
- `X can be used again`, when it works again.

The first two have the reason, and the last two the seconds since it began. All are warnings, so an alert that counts
them misses none.
"""

from __future__ import annotations

import logging
from typing import Any

#: Seconds between two lines of an outage, and between the first lines of two outages.
EVERY_SECONDS = 60.0
#: Seconds after which an outage is logged that began within `EVERY_SECONDS` of the one before. What comes and goes
#: would fill the log otherwise.
SHORT_SECONDS = 10.0
#: Reasons of one outage that are each logged at once.
MOST_REASONS = 5


class OutageLog:
    """The outages of one thing that a program needs, such as its broker. Times are of a monotonic clock, in seconds."""

    def __init__(
        self,
        logger: logging.Logger | logging.LoggerAdapter[logging.Logger],
        what: str,
        *,
        tolerated: int = 0,
        meanwhile: str = "trying again",
        **fields: Any,
    ) -> None:
        """`what` begins the lines: "the broker". `meanwhile` says what the program does until it is back.

        `tolerated`: failures in a row, or within `EVERY_SECONDS`, that are not logged: those of a peer that restarts,
        or where another part of the program logs the same outage.
        `fields` are those of each line.
        """
        self._logger, self._fields, self._tolerated = logger, fields, tolerated
        self._begins = f"{what} cannot be used; {meanwhile}"
        self._lasts = f"{what} still cannot be used; {meanwhile}"
        self._ends = f"{what} can be used again"
        self._failures = 0
        #: Failures within `EVERY_SECONDS`, in a row or not, and since when they are counted.
        self._counted, self._counted_since = 0, float("-inf")
        self._since = self._due = 0.0
        self._logged = False
        self._began_last = float("-inf")
        self._reasons: set[str] = set()

    @property
    def is_away(self) -> bool:
        """Whether the last try failed."""
        return self._failures > 0

    def failed(self, reason: str, now: float, **fields: Any) -> None:
        """Note a failure, and log it if a line is due. `fields` are those of this line."""
        if not self._failures:
            self._since = now
        self._failures += 1
        if now - self._counted_since >= EVERY_SECONDS:
            self._counted, self._counted_since = 0, now
        self._counted += 1
        if not self._logged:
            if max(self._failures, self._counted) > self._tolerated and (
                now - self._began_last >= EVERY_SECONDS or now - self._since >= SHORT_SECONDS
            ):
                self._logged, self._began_last = True, now
                self._log(self._begins, reason, now, fields)
        elif now >= self._due or (reason not in self._reasons and len(self._reasons) < MOST_REASONS):
            self._log(self._lasts, reason, now, {"seconds": self._seconds(now), **fields})

    def over(self, now: float, **fields: Any) -> None:
        """Note that it works, and log it if the outage was logged."""
        if not self._failures:
            return
        if self._logged:
            self._logger.warning(self._ends, extra={"seconds": self._seconds(now), **self._fields, **fields})
        self._failures, self._logged = 0, False
        self._reasons.clear()

    def _log(self, line: str, reason: str, now: float, fields: dict[str, Any]) -> None:
        self._due = now + EVERY_SECONDS
        self._reasons.add(reason)
        self._logger.warning(line, extra={"reason": reason, **self._fields, **fields})

    def _seconds(self, now: float) -> float:
        return round(now - self._since, 1)
