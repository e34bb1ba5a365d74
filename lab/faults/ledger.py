"""The account of all requests: what became of each, and during which fault. Pure: it gets what was found.

Only a confirmed request can be lost. It was answered when any reply to it was seen, by its client or in the reply queue
that a killed client left; else it is in the poison inventory, or still queued; else it is lost. What was in a queue
that the broker itself lost is counted apart.
"""

from __future__ import annotations

import enum
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from faults import timing

#: What is accounted before the first fault and after the last one has healed is this kind's.
STEADY = "(no fault)"


#: What an account counts.
COUNTS = (
    "injected",
    "requests",
    "answered",
    "poisoned",
    "queued",
    "lost_by_broker",
    "lost",
    "duplicates",
    "redelivered",
)


class Fate(enum.Enum):
    """What became of a confirmed request."""

    ANSWERED = "answered"
    POISONED = "poisoned"
    QUEUED = "queued"
    #: The broker had confirmed it, and lost its queue.
    LOST_BY_BROKER = "lost_by_broker"
    LOST = "lost"


@dataclass(slots=True)
class Request:
    """One request; times in seconds of the machine's monotonic clock."""

    name: str
    client: str
    key: str
    wants_reply: bool
    sent: float
    confirmed: float | None = None
    refused: str | None = None
    #: Status of each reply, in the order in which they were found, and when; None where it lay in a queue at the end.
    replies: list[str] = field(default_factory=list)
    replied: list[float | None] = field(default_factory=list)
    poisoned: bool = False
    queued: bool = False
    lost_by_broker: bool = False

    @property
    def fate(self) -> Fate:
        if self.replies:
            return Fate.ANSWERED
        if self.poisoned:
            return Fate.POISONED
        if self.queued:
            return Fate.QUEUED
        return Fate.LOST_BY_BROKER if self.lost_by_broker else Fate.LOST

    def ended(self, lifetime: float) -> float:
        """Return when it was answered; without an answer, when its time to live was over at the latest."""
        return (self.replied[0] if self.replied else None) or self.sent + lifetime


@dataclass(frozen=True, slots=True)
class Window:
    """A fault, from its begin until all was well again."""

    kind: str
    began: float
    ended: float


@dataclass(slots=True)
class Row:
    """The account of one kind of fault: of the confirmed requests that were under way while it lasted."""

    kind: str
    injected: int = 0
    requests: int = 0
    answered: int = 0
    poisoned: int = 0
    queued: int = 0
    lost_by_broker: int = 0
    lost: int = 0
    duplicates: int = 0
    redelivered: int = 0
    #: Longest time without any answer, in seconds.
    outage: float = 0.0

    def add(self, other: Row) -> None:
        """Add the account of the same kind in another run."""
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.outage = max(self.outage, other.outage)


class Ledger:
    """Requests by name."""

    def __init__(self) -> None:
        self.requests: dict[str, Request] = {}
        #: When answers came to clients, in order of time once `settle` has sorted them.
        self.answers: list[float] = []
        #: When workers of the library were given a request that had been delivered before.
        self.redelivered: list[float] = []
        #: Names by correlation id, where these differ.
        self._names: dict[str, str] = {}

    def take(self, steps: Iterable[Mapping[str, Any]]) -> None:
        """Enter steps from journals."""
        for step in steps:
            name, at = step["request"], step["at"]
            match step["step"]:
                case "sent":
                    self.requests[name] = Request(name, step["client"], step["key"], step["replies"], at)
                case "named":
                    self._names[step["correlation_id"]] = name
                case "confirmed":
                    self.requests[name].confirmed = at
                case "refused":
                    self.requests[name].refused = step["why"]
                case "answered":
                    self.answers.append(at)
                    self.reply(step["correlation_id"], step["status"], at)

    def reply(self, correlation_id: str | None, status: str, at: float | None = None) -> None:
        """Enter a reply, wherever it was found; `at` is when it came to its client."""
        request = self._find(self._names.get(correlation_id or "", correlation_id))
        if request is not None:
            request.replies.append(status)
            request.replied.append(at)

    def poison(self, name: str) -> None:
        """Enter a request that was found in the poison inventory."""
        request = self._find(name)
        if request is not None:
            request.poisoned = True

    def queue(self, name: str) -> None:
        """Enter a request that was found in a queue."""
        request = self._find(name)
        if request is not None:
            request.queued = True

    def lose_queue(self, key: str, *, since: float, until: float) -> None:
        """The broker lost a key's queue at `until`. Requests that were sent after `since` may have been in it."""
        for request in self.requests.values():
            request.lost_by_broker |= request.key == key and since < request.sent < until

    def _find(self, name: str | None) -> Request | None:
        return self.requests.get(name or "")

    @property
    def confirmed(self) -> list[Request]:
        """Those for which the broker took responsibility."""
        return [request for request in self.requests.values() if request.confirmed is not None]

    def waiting(self, clients: Iterable[str]) -> list[Request]:
        """Return what these clients still wait for: an answer, or whether the broker has the request at all."""
        alive = set(clients)
        return [
            request
            for request in self.requests.values()
            if request.client in alive
            and not request.replies
            and request.refused is None
            and (request.wants_reply or request.confirmed is None)
        ]

    def answered_since(self, moment: float) -> set[str]:
        """Return the clients that have an `ok` for a request sent after this moment."""
        return {
            request.client for request in self.requests.values() if request.sent > moment and "ok" in request.replies
        }

    def keys_answered_since(self, moment: float) -> set[str]:
        """Return the keys that have an `ok` for a request sent after this moment."""
        return {request.key for request in self.requests.values() if request.sent > moment and "ok" in request.replies}

    def late(self, keys: Iterable[str], windows: Sequence[tuple[float, float]]) -> float:
        """Return within how many seconds 99 of 100 requests of these keys had their answer, of those sent in windows.

        Windows are from a moment to another one. Raises ValueError where none was answered.
        """
        wanted = set(keys)
        found = [
            request.replied[0] - request.sent
            for request in self.requests.values()
            if request.key in wanted
            and any(began <= request.sent < ended for began, ended in windows)
            and request.replied
            and request.replied[0] is not None
        ]
        if not found:
            raise ValueError(f"no request of {', '.join(sorted(wanted))} was answered")
        return timing.p99(found)

    @property
    def lost(self) -> list[Request]:
        return [request for request in self.confirmed if request.fate is Fate.LOST]

    @property
    def statuses(self) -> Counter[str]:
        """How often each status was the first answer to a confirmed request."""
        return Counter(request.replies[0] for request in self.confirmed if request.replies)

    def rows(self, windows: Sequence[Window], *, began: float, ended: float, lifetime: float) -> list[Row]:
        """Return one row a kind, in the order of their first injection; the first row is that of no fault.

        Windows are in order of time. A request that was under way during several faults is the first one's. A
        duplicate or a redelivery is that of the latest fault before it: it takes its time. `lifetime`: seconds that a
        request lives in a queue.
        """
        rows = {STEADY: Row(STEADY)}
        for window in windows:
            rows.setdefault(window.kind, Row(window.kind)).injected += 1
        for request in self.confirmed:
            kind = kind_during(request.sent, request.ended(lifetime), windows)
            row = rows[kind]
            row.requests += 1
            setattr(row, request.fate.value, getattr(row, request.fate.value) + 1)
            for at in request.replied[1:]:
                rows[kind if at is None else kind_before(at, windows)].duplicates += 1
        for at in self.redelivered:
            rows[kind_before(at, windows)].redelivered += 1
        times = [began, *sorted(answer for answer in self.answers if began <= answer <= ended), ended]
        for before, after in itertools.pairwise(times):
            row = rows[kind_most_of(before, after, windows)]
            row.outage = max(row.outage, after - before)
        return list(rows.values())


def kind_before(moment: float, windows: Sequence[Window]) -> str:
    """Return the kind of the latest fault that had begun at this moment."""
    return next((window.kind for window in reversed(windows) if window.began <= moment), STEADY)


def kind_during(before: float, after: float, windows: Sequence[Window]) -> str:
    """Return the kind of the first fault that lasted within this time."""
    return next((window.kind for window in windows if window.began < after and before < window.ended), STEADY)


def kind_most_of(before: float, after: float, windows: Sequence[Window]) -> str:
    """Return the kind of the fault that lasted for most of this time."""

    def shared(window: Window) -> float:
        return min(after, window.ended) - max(before, window.began)

    found = max(windows, key=shared, default=None)
    return STEADY if found is None or shared(found) <= 0 else found.kind
