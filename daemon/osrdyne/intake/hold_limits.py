"""How many messages a task may hold while it waits: by number for each key, and by number and bytes in all.

Pure. A message that does not fit goes back to the tail of its queue, so that one bad key cannot hold every
prefetch slot. Its return is delayed (`failures.message_handler`), so that the message does not circle at full speed.

A key never holds more than is left for all the others, and the last quarter is for keys that hold nothing
yet. So a few bad keys with many requests each do not keep out a good one.
"""

from __future__ import annotations

#: This share of the room is for keys that hold nothing yet: one part in 4.
_RESERVED_PART = 4


class HeldMessages:
    """Counts what is held. `admit` and `release` come in pairs."""

    def __init__(self, *, per_key: int, total: int, total_bytes: int) -> None:
        """Take the bounds. Bytes can come to twice `total_bytes`; see `admit`."""
        self._per_key = per_key
        self._total = total
        self._total_bytes = total_bytes
        #: Messages and bytes of each key that holds some.
        self._keys: dict[str, tuple[int, int]] = {}
        self.messages = 0
        self.bytes = 0

    def admit(self, key: str, size: int) -> bool:
        """Count one message of `size` bytes and return True; return False when it does not fit.

        When the bytes are used up, the first message of a key still fits if it is no larger than an even
        share of them. A message larger than the bound on bytes fits only when no other is held.
        """
        fits = self._fits(key, size)
        if fits:
            messages, held = self._keys.get(key, (0, 0))
            self._keys[key] = messages + 1, held + size
            self.messages += 1
            self.bytes += size
        return fits

    def holds(self, key: str) -> bool:
        """Return whether a message of this key is held."""
        return key in self._keys

    def _fits(self, key: str, size: int) -> bool:
        room = self._total - self.messages
        if room <= 0:
            return False
        messages, held = self._keys.get(key, (0, 0))
        if messages == 0:
            small = size * self._total <= self._total_bytes
            return small or self.messages == 0 or self.bytes + size <= self._total_bytes
        free = room - self._total // _RESERVED_PART
        return messages < min(self._per_key, free) and held + size <= self._total_bytes - self.bytes

    def release(self, key: str, size: int) -> None:
        """Give back what `admit` took."""
        messages, held = self._keys[key]
        if messages > 1:
            self._keys[key] = messages - 1, held - size
        else:
            del self._keys[key]
        self.messages -= 1
        self.bytes -= size
