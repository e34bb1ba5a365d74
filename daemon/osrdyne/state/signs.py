"""Whether a key's queue has a consumer: a pure decision from what workers report and from the broker's counts.

A process that runs may consume nothing: its worker has stopped and something keeps the process, or it never began. So
neither the engine nor the status may take a group for alive because its process is there. Counts are seconds late, and
events may be lost; so the newer one of both decides, and a group is restarted only by what counts have shown for long.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Signs:
    """What is known of the consumers of one key's queue. Times are monotonic seconds, None for never."""

    #: When the engine last accepted a start of its group. What was before says nothing about the workers of today.
    started_at: float | None = None
    #: When a worker last said that it is about to consume, or that it got a request.
    consuming_at: float | None = None
    #: When a worker last said that it stops, where none has said since that it consumes.
    stopping_at: float | None = None
    #: When a worker last reported anything but that.
    last_event: float | None = None
    #: Consumers by the last counts, None where its queue was not counted.
    consumers: int | None = None
    #: When these counts were asked for, and since when counts of this queue have come without an interruption.
    counted_at: float | None = None
    counted_since: float | None = None
    #: When the last counts that showed a consumer were asked for.
    served_at: float | None = None

    def is_served(self, *, late: float) -> bool:
        """Return whether a worker consumes, as far as is known. `late`: seconds that counts may be late."""
        said = self._since_start(self.consuming_at)
        counted = None if self.counted_at is None or self.consumers is None else self.counted_at - late
        if (stopping := self._since_start(self.stopping_at)) is not None:
            # Only another worker of the group can still consume.
            return bool(self.consumers) and counted is not None and counted > stopping
        if counted is None:
            return said is not None
        if self.consumers:
            return said is not None or self._since_start(counted) is not None
        return said is not None and said > counted

    def was_served(self, *, late: float) -> bool:
        """Return whether a worker of the group that was last started has consumed, whether or not it still does."""
        counted = None if self.served_at is None else self.served_at - late
        return any(self._since_start(at) is not None for at in (self.consuming_at, self.stopping_at, counted))

    def unserved_reason(self, *, grace: float, late: float, running_since: float) -> str | None:
        """Return why a running group counts as one that consumes nothing, None where it does not.

        No counts of `grace` seconds showed a consumer, and meanwhile it was not started and reported nothing: a worker
        that loads data for long may send `alive`. What it reports of its last requests while it stops does not count.
        An engine may need long to start what it accepted, to fetch an image for example: the time of a worker that has
        not consumed yet counts from `running_since`, when the engine first listed the group as running.
        """
        if self.consumers != 0 or self.counted_at is None or self.counted_since is None:
            return None
        stops = self._since_start(self.stopping_at) is not None
        since = max(
            self.counted_since,
            self.served_at or 0.0,
            self.started_at or 0.0,
            0.0 if self.was_served(late=late) else running_since,
            (self.stopping_at if stops else self.last_event) or 0.0,
        )
        seconds = self.counted_at - late - since
        if seconds < grace:
            return None
        if stops:
            return f"stuck: its worker said that it stops, and has not ended for {seconds:.0f} s; nothing consumes"
        return f"stuck: it runs, and nothing has consumed its queue for {seconds:.0f} s"

    def _since_start(self, at: float | None) -> float | None:
        return None if at is None or (self.started_at is not None and at < self.started_at) else at
