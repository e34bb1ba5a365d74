"""The acknowledgements of one channel, gathered so that few of them leave. No I/O.

One `basic.ack` can settle all deliveries up to its tag (AMQP 0-9-1, `multiple`). For a quorum queue each `basic.ack` is
an entry of its log, so ten deliveries that are settled by one cost the broker a tenth of the entries.
"""

from __future__ import annotations

from collections import Counter


class Acknowledgements:
    """The deliveries of one channel that are not settled, and those of them whose acknowledgement has not left."""

    def __init__(self) -> None:
        #: Delivery tags, oldest first: the broker counts them upwards.
        self._unsettled: dict[int, None] = {}
        self._waiting: list[int] = []

    def delivered(self, tag: int) -> None:
        """Note a delivery that has to be settled."""
        self._unsettled[tag] = None

    def refused(self, tag: int) -> None:
        """Note a delivery that was settled in another way."""
        self._unsettled.pop(tag, None)

    def add(self, tag: int, *, multiple: bool = False) -> bool:
        """Acknowledge a delivery, with `multiple` all older ones too, and all there are where the tag is 0.

        Returns whether it is the first that waits.
        """
        first = not self._waiting
        if multiple:
            self._waiting += [
                delivered
                for delivered in self._unsettled
                if (delivered <= tag or not tag) and delivered not in self._waiting
            ]
        else:
            self._waiting.append(tag)
        return first and bool(self._waiting)

    def take(self) -> list[tuple[int, bool]]:
        """Return the acknowledgements to send, as delivery tag and `multiple`; they wait no longer.

        `multiple` settles older deliveries too, so it is used only as far as all of them are acknowledged. What is
        unknown or acknowledged twice is sent as it is: the broker closes the channel because of it.
        """
        waiting, self._waiting = self._waiting, []
        if len(waiting) == 1:
            self._unsettled.pop(waiting[0], None)
            return [(waiting[0], False)]
        acknowledged = set(waiting)
        together = []
        for tag in self._unsettled:
            if tag not in acknowledged:
                break
            together.append(tag)
        acknowledged.difference_update(together)
        for tag in (*together, *acknowledged):
            self._unsettled.pop(tag, None)
        twice = [tag for tag, times in Counter(waiting).items() if times > 1]
        first = [(together[-1], len(together) > 1)] if together else []
        return first + [(tag, False) for tag in (*sorted(acknowledged), *twice)]
