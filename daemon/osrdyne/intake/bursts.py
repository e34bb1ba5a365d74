"""Debouncing of activity: only the first event of a burst counts. Pure; time is an argument."""

from __future__ import annotations

#: With this many bursts in memory, those that are over are removed.
_TIDY_AT = 4096


class Bursts:
    """Lets one event of each key through in every burst of `length` seconds."""

    def __init__(self, length: float) -> None:
        self._length = length
        self._open: dict[str, float] = {}
        self._tidy_at = _TIDY_AT

    def observe(self, key: str, now: float) -> float | None:
        """Return the extra lifetime in seconds for the first event of a burst, None for the others.

        The later events do not renew the key, so the first one covers the whole burst. Without the burst's
        length on top, a key in steady use would live shorter than its delay.
        """
        since = self._open.get(key)
        if since is not None and now - since < self._length:
            return None
        if len(self._open) >= self._tidy_at:
            self._open = {name: at for name, at in self._open.items() if now - at < self._length}
            self._tidy_at = max(_TIDY_AT, 2 * len(self._open))
        self._open[key] = now
        return self._length
