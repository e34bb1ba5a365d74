"""How many messages a task may hold while it waits: by number for each key, and by number and bytes in all.

Pure bookkeeping. What does not fit is put back at the tail of its queue, so that one bad key cannot hold
every prefetch slot; how fast it may be put back is bounded too, so that it does not spin.

A key never holds more than is left for all the others, and the last quarter is for keys that hold nothing
yet: so some bad keys, each with many requests, do not keep out a good one.
"""

from __future__ import annotations

from dataclasses import dataclass

#: One part in so many of the room is for keys that hold nothing yet.
_RESERVED = 4


@dataclass(frozen=True, slots=True)
class HoldLimits:
    """Bounds on held messages. Bytes can come to twice `total_bytes`; see `HeldMessages.admit`."""

    per_key: int
    total: int
    total_bytes: int


class HeldMessages:
    """Counts what is held. `admit` and `release` come in pairs."""

    def __init__(self, limits: HoldLimits) -> None:
        self._limits = limits
        #: Messages and bytes of each key that holds some.
        self._keys: dict[str, tuple[int, int]] = {}
        self.messages = 0
        self.bytes = 0

    def admit(self, key: str, size: int) -> bool:
        """Take one message of `size` bytes into account and return True, or return False when it is too much.

        The first message of a key is also admitted when the bytes are used up, if it is no larger than an even
        share of them. One larger than the bound on bytes is admitted when it is the only one, else it never
        would be.
        """
        fits = self._fits(key, size)
        if fits:
            messages, held = self._keys.get(key, (0, 0))
            self._keys[key] = messages + 1, held + size
            self.messages += 1
            self.bytes += size
        return fits

    def _fits(self, key: str, size: int) -> bool:
        limits, room = self._limits, self._limits.total - self.messages
        if room <= 0:
            return False
        messages, held = self._keys.get(key, (0, 0))
        if messages == 0:
            small = size * limits.total <= limits.total_bytes
            return small or self.messages == 0 or self.bytes + size <= limits.total_bytes
        free = room - limits.total // _RESERVED
        return messages < min(limits.per_key, free) and held + size <= limits.total_bytes - self.bytes

    def release(self, key: str, size: int) -> None:
        """Give back what `admit` took."""
        messages, held = self._keys[key]
        if messages > 1:
            self._keys[key] = messages - 1, held - size
        else:
            del self._keys[key]
        self.messages -= 1
        self.bytes -= size
