"""The acknowledgements of one channel, gathered so that few of them leave. No I/O.

One `basic.ack` can settle all deliveries up to its tag (AMQP 0-9-1, `multiple`). For a quorum queue each `basic.ack` is
an entry of its log, so ten deliveries that are settled by one cost the broker a tenth of the entries.
"""

from __future__ import annotations


class Acknowledgements:
    """The deliveries of one channel that are not settled, and those of them whose acknowledgement has not left."""

    def __init__(self) -> None:
        #: Delivery tags, oldest first: the broker counts them upwards.
        self._unsettled: dict[int, None] = {}
        self._waiting: set[int] = set()

    def delivered(self, tag: int) -> None:
        """Note a delivery that has to be settled."""
        self._unsettled[tag] = None

    def refused(self, tag: int) -> None:
        """Note a delivery that was settled in another way."""
        self._unsettled.pop(tag, None)

    def add(self, tag: int, *, multiple: bool = False) -> bool:
        """Acknowledge a delivery, with `multiple` all older ones too; return whether it is the first that waits."""
        first = not self._waiting
        if multiple:
            self._waiting.update(one for one in self._unsettled if one <= tag)
        else:
            self._waiting.add(tag)
        return first and bool(self._waiting)

    def take(self) -> list[tuple[int, bool]]:
        """Return the acknowledgements to send, as delivery tag and `multiple`; they wait no longer.

        `multiple` settles older deliveries too, so it is used only as far as all of them are acknowledged.
        """
        if len(self._waiting) == 1:
            tag = self._waiting.pop()
            self._unsettled.pop(tag, None)
            return [(tag, False)]
        together = []
        for tag in self._unsettled:
            if tag not in self._waiting:
                break
            together.append(tag)
        single = sorted(self._waiting.difference(together))
        for tag in (*together, *single):
            self._unsettled.pop(tag, None)
        self._waiting.clear()
        first = [(together[-1], len(together) > 1)] if together else []
        return first + [(tag, False) for tag in single]
