"""How workers ended, and why some could not be started: facts that outlive their key's queue. Bounded.

Pure, but for what `WorkerEnds` holds. `osrdyne.drivers.base` has what a driver says of an end.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from osrdyne.drivers.base import How, WorkerEnd
from osrdyne_protocol import events, headers

#: Keys whose last ends are kept, those that ended last, and ends of each.
MOST_KEYS = 100
MOST_OF_KEY = 3
#: Longest sentence of an end, in characters.
LONGEST_REASON = 800
#: Longest reason of a request's end, which repeats that sentence after one of its own.
LONGEST_REASON_OF_REQUEST = LONGEST_REASON + 200


@dataclass(frozen=True, slots=True)
class EndFact:
    """One worker of a key ended, or could not be started."""

    key: str
    end: WorkerEnd
    #: A sentence for a person, on one line.
    reason: str
    #: Whether it had said `started`, or consumed; None where that is not known.
    started: bool | None
    #: Requests that it had not settled, as far as it reported; None where that is not known.
    held: int | None
    #: When that was noticed, in monotonic seconds.
    at: float
    #: Whether it counts as a failure: it ended without a request, or was stopped because it did not work.
    failed: bool = True

    @property
    def event(self) -> str:
        return events.START_FAILED if self.end.how is How.NO_START else events.WORKER_ENDED

    def headers(self) -> dict[str, str | int]:
        """Return what its event says beyond what every event does."""
        end = self.end
        values: dict[str, str | int | None] = {
            headers.X_DURATION: None if end.seconds is None else round(1000 * end.seconds),
            headers.X_REASON: self.reason,
            headers.X_ENDED_WORKER: end.worker_id,
            headers.X_STARTED: None if self.started is None else int(self.started),
            headers.X_HELD: self.held,
            headers.X_OUTPUT: "\n".join(end.output) or None,
            headers.X_LOG: end.log or None,
        }
        return {name: value for name, value in values.items() if value is not None}

    def shown(self, now: float) -> dict[str, Any]:
        """Return it as JSON-ready values, as the status shows it."""
        end = self.end
        return {
            "key": self.key,
            "event": self.event,
            "how": end.short,
            "reason": self.reason,
            "worker": end.worker_id,
            "ran_seconds": end.seconds,
            "started": self.started,
            "held": self.held,
            "output": list(end.output),
            "log": end.log or None,
            "ago": max(0.0, now - self.at),
        }


def had_started(
    end: WorkerEnd,
    said: Mapping[str, float],
    *,
    former: float,
    began: float | None,
    since: float,
    served_at: float | None,
) -> bool | None:
    """Return whether a worker that ended had shown that it works; None where that is not known.

    `said` has when each worker of the key last said `started`, by its identity, empty where it named none. `former` is
    when the run before this one ended, 0.0 where unknown, and `began` when this one began, None where unknown. What was
    said before `since` is not known. `served_at` is when the queue last had a consumer. Times are monotonic seconds.
    """
    if end.how is How.NO_START:
        return False
    own = (at for name, at in said.items() if end.worker_id is None or name in (end.worker_id, ""))
    # Where only its first word shows that its engine started it again, it began with that.
    if any(at > former and at >= (began or 0.0) for at in own):
        return True
    # A worker that is not heard is known by its consumer. Where others were heard, that may be theirs.
    if served_at is not None and served_at > max(former, began or 0.0):
        return None if said else True
    return None if began is None or began < since else False


class WorkerEnds:
    """The last ends by key; the group loop writes them."""

    def __init__(self) -> None:
        self._by_key: OrderedDict[str, tuple[EndFact, ...]] = OrderedDict()

    def note(self, fact: EndFact) -> None:
        """Remember an end, and forget the oldest ones beyond the bounds."""
        self._by_key[fact.key] = (*self.of(fact.key), fact)[-MOST_OF_KEY:]
        self._by_key.move_to_end(fact.key)
        if len(self._by_key) > MOST_KEYS:
            self._by_key.popitem(last=False)

    def former(self, key: str, worker_id: str | None) -> float | None:
        """Return when the worker with this identity last ended (monotonic seconds), or, for None, any of the key.

        Returns None where that is not known.
        """
        ends = (fact.at for fact in reversed(self.of(key)) if worker_id in (None, fact.end.worker_id))
        return next(ends, None)

    def of(self, key: str) -> tuple[EndFact, ...]:
        """Return the last ends of a key, oldest first."""
        return self._by_key.get(key, ())

    def latest(self) -> list[EndFact]:
        """Return all that are remembered, those of the key that ended last at the end."""
        return [fact for facts in self._by_key.values() for fact in facts]

    def why(self, key: str, *, since: float | None) -> str | None:
        """Return the reason of the last failure of a key's workers since a time in monotonic seconds; None without any.

        Where that time is not known, the last end of this key is the one that counts, if it was a failure.
        """
        facts = self.of(key)[-1:] if since is None else [fact for fact in self.of(key) if fact.at >= since]
        return next((fact.reason for fact in reversed(facts) if fact.failed), None)
