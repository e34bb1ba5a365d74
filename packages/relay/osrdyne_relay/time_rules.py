"""When to look again, and when the other side is gone. Pure: times are arguments, in seconds of one
process's monotonic clock. Clocks of two processes are never compared.
"""

from __future__ import annotations


def polled_for(look_every: float) -> float:
    """Return the seconds for which an endpoint counts as polled after a look there: until two looks were missed."""
    return 3 * look_every


class LookSchedule:
    """When to look without having had a pulse: `first` seconds after something happened, then after twice as long, and
    so on up to `most`.
    """

    def __init__(self, first: float, most: float, now: float) -> None:
        self._first, self._most = min(first, most), most
        self._pause = self._first
        #: When the next look is due.
        self.due = now

    def looked(self, now: float) -> None:
        """Note a look that found nothing new."""
        self.due = now + self._pause
        self._pause = min(2 * self._pause, self._most)

    def active(self) -> None:
        """Note that something happened: the looks after the next one are close again."""
        self._pause = self._first

    def at_once(self) -> None:
        """Let a look be due now: pulses may have been lost."""
        self.due = float("-inf")


class AwakeClock:
    """A clock less the seconds for which this process stood still: what others said meanwhile is still to be read."""

    def __init__(self) -> None:
        self._stood = 0.0

    def slept(self, pause: float, took: float) -> None:
        """Note that a sleep of `pause` seconds took so many."""
        if took > 2 * pause:
            self._stood += took - pause

    def at(self, now: float) -> float:
        """Return what this clock shows when the monotonic one shows `now`."""
        return now - self._stood


class PeerWatch:
    """Whether the other side of a call is gone, by a counter in Redis that it changes.

    Silence is the time between looks at Redis that succeeded and saw the same counter. A step between two looks counts
    with `step` seconds at most. So neither an outage of Redis nor a sleep of this process counts as the peer's silence.
    """

    def __init__(self, gone_after: float, step: float, now: float) -> None:
        self._gone_after, self._step = gone_after, step
        self._beat: bytes | None = None
        self._looked_at = now
        #: Seconds.
        self.silence = 0.0

    def note(self, beat: bytes | None, now: float) -> bool:
        """Note the counter that a look found; return whether the peer is gone."""
        if beat is not None and beat != self._beat:
            self._beat, self.silence = beat, 0.0
        else:
            self.silence += min(max(now - self._looked_at, 0.0), self._step)
        self._looked_at = now
        return self.silence >= self._gone_after
