"""The credit of one subscription: how many messages the peer may still send. Pure.

AMQP 1.0, part 2, section 2.6.7 (flow control): a receiver grants credit, and each message that the peer sends uses up
one. How much is granted, and when, follows decision 0029.
"""

from __future__ import annotations

from osrdyne_bus.counts import BusCounts


class CreditWindow:
    """Credit and unacknowledged messages together are never more than `size`.

    Credit is granted at once, and again when an acknowledgement leaves room for half of the size: a slow server
    buffers at most `size` messages, and a fast one sends a flow frame for each half of them.
    """

    __slots__ = ("_counts", "_unacknowledged", "credit", "size", "stalls")

    def __init__(self, size: int, counts: BusCounts | None = None) -> None:
        """Begin without credit. What comes is counted in `counts`, too. Raises ValueError for a size below 1."""
        if size < 1:
            raise ValueError(f"a window of {size} messages; give it 1 or more")
        self.size = size
        #: messages that the peer may still send
        self.credit = 0
        #: how often the peer had used up its credit
        self.stalls = 0
        self._unacknowledged = 0
        self._counts = counts or BusCounts()

    @property
    def unacknowledged(self) -> int:
        """Messages that came and are not acknowledged."""
        return self._unacknowledged

    def opened(self) -> int:
        """Return the credit to grant to a link that was just attached, for the first time or again.

        What came over an earlier link can no longer be acknowledged there: it does not count.
        """
        self._unacknowledged = 0
        self.credit = self.size
        return self.size

    def arrived(self) -> bool:
        """Note a message, and return whether it was the last one that the peer may send."""
        self._counts.received += 1
        self._unacknowledged += 1
        self.credit = max(0, self.credit - 1)
        stalled = self.credit == 0
        self.stalls += stalled
        self._counts.stalls += stalled
        return stalled

    def closed(self) -> None:
        """Note that the link has ended: what came over it can no longer be acknowledged."""
        self.credit = self._unacknowledged = 0

    def acknowledged(self) -> int:
        """Note that a message was acknowledged, and return the credit to add for it; often 0."""
        self._unacknowledged = max(0, self._unacknowledged - 1)
        room = self.size - self.credit - self._unacknowledged
        if room * 2 < self.size:
            return 0
        self.credit += room
        return room
