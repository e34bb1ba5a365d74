"""The slots of a client: a fixed number of calls in flight, each matched to its reply in constant time.

A correlation id is `{client}-{slot}-{sequence}`: 16 hexadecimal digits that identify the client (in logs; a reply
queue has one reader anyway), 4 for the slot, 8 for a 32-bit sequence number that every call increments. A reply finds
its slot by the slot number and is accepted only when the whole id matches, so an answer to an earlier user of the slot
is dropped. Free slots are a stack. A caller that stops waiting leaves its slot taken; such slots, and those past their
deadline, are reclaimed only when all are taken. The idea is Eric Urban's, 2014.

Pure: time is an argument, nothing here waits or logs.
"""

from __future__ import annotations

import math
from typing import Generic, TypeVar

from osrdyne_calls.errors import NoFreeSlot

#: Slot numbers are four hexadecimal digits.
MOST_SLOTS = 0x10000
#: Sequence numbers wrap at 2**32; at 50,000 calls a second that takes a day.
SEQUENCE_MASK = 0xFFFFFFFF

Entry = TypeVar("Entry")


class Slots(Generic[Entry]):
    """A fixed number of slots, each free or taken by one entry. Entries are never None."""

    __slots__ = (
        "_deadlines",
        "_entries",
        "_free",
        "_ids",
        "_next_sweep",
        "_prefix",
        "_sequence",
        "foreign",
        "size",
        "stale",
    )

    def __init__(self, size: int, client: str, *, first_sequence: int = 0) -> None:
        """Create `size` free slots; `client` is the opaque first part of all correlation ids."""
        if not 1 <= size <= MOST_SLOTS:
            raise ValueError(f"{size} slots; a client has 1 to {MOST_SLOTS}")
        self.size = size
        #: replies dropped because their call had been given up, or its slot had another user
        self.stale = 0
        #: replies dropped because their correlation id is none of this client's
        self.foreign = 0
        self._prefix = f"{client}-"
        self._sequence = first_sequence & SEQUENCE_MASK
        self._entries: list[Entry | None] = [None] * size
        self._ids = [""] * size
        self._deadlines = [math.inf] * size
        self._free = list(range(size - 1, -1, -1))
        self._next_sweep = math.inf

    @property
    def taken(self) -> int:
        """How many slots are taken, including those of abandoned calls."""
        return self.size - len(self._free)

    def take(self, entry: Entry, *, now: float, deadline: float) -> str:
        """Take a free slot until `deadline` and return the correlation id of the call. Raises `NoFreeSlot`."""
        if not self._free:
            self._sweep(now)
            if not self._free:
                raise NoFreeSlot(
                    f"all {self.size} slots wait for a reply; wait for some, or open the client with more slots"
                )
        slot = self._free.pop()
        correlation_id = f"{self._prefix}{slot:04x}-{self._sequence:08x}"
        self._sequence = (self._sequence + 1) & SEQUENCE_MASK
        self._entries[slot] = entry
        self._ids[slot] = correlation_id
        self._deadlines[slot] = deadline
        if deadline < self._next_sweep:
            self._next_sweep = deadline
        return correlation_id

    def match(self, correlation_id: object) -> Entry | None:
        """Return the entry that waits for this reply and free its slot; None, and counted, when there is none."""
        slot = self._slot(correlation_id)
        if slot is None:
            self.foreign += 1
            return None
        if self._ids[slot] != correlation_id:
            self.stale += 1
            return None
        entry = self._entries[slot]
        self._release(slot)
        if entry is None:
            self.stale += 1
        return entry

    def abandon(self, correlation_id: str) -> None:
        """Mark a call as abandoned: a late reply frees its slot, or the next sweep does."""
        slot = self._slot(correlation_id)
        if slot is not None and self._ids[slot] == correlation_id:
            self._entries[slot] = None
            self._deadlines[slot] = self._next_sweep = -math.inf

    def release(self, correlation_id: str) -> None:
        """Free the slot of a call to which no reply can come; do nothing when it is not waiting."""
        slot = self._slot(correlation_id)
        if slot is not None and self._ids[slot] == correlation_id:
            self._release(slot)

    def waiting(self) -> list[Entry]:
        """Return the entries that still wait for a reply, in no particular order."""
        return [entry for entry in self._entries if entry is not None]

    def _slot(self, correlation_id: object) -> int | None:
        """Return the slot that an id of this client names, even if another call has it now."""
        if not isinstance(correlation_id, str) or not correlation_id.startswith(self._prefix):
            return None
        start = len(self._prefix)
        try:
            slot = int(correlation_id[start : start + 4], 16)
        except ValueError:
            return None
        return slot if 0 <= slot < self.size else None

    def _release(self, slot: int) -> None:
        self._entries[slot] = None
        self._ids[slot] = ""
        self._deadlines[slot] = math.inf
        self._free.append(slot)

    def _sweep(self, now: float) -> None:
        """Free every slot past its deadline. Returns at once while none can be."""
        if now < self._next_sweep:
            return
        soonest = math.inf
        for slot, deadline in enumerate(self._deadlines):
            if deadline <= now:
                self._release(slot)
            elif deadline < soonest:
                soonest = deadline
        self._next_sweep = soonest
