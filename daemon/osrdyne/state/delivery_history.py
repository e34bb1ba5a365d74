"""Which workers received which request, and when, as they reported. Helps a person who inspects a poison entry.

Best effort: it covers only workers that send `request-received` with their id and the request's, only events that this
daemon received since it started, and only a bounded number of requests, those delivered last.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

#: Requests that are remembered, and deliveries of each; a request takes a few hundred bytes.
MOST_REQUESTS = 10_000
MOST_HANDOUTS = 32
#: Longest worker id and request id that are remembered, in characters.
LONGEST_ID = 255


@dataclass(frozen=True, slots=True)
class PastDelivery:
    """A request was delivered to this worker at this time, in milliseconds since the Unix epoch."""

    worker_id: str
    time_ms: int


class DeliveryHistory:
    """Deliveries of the unanswered requests that were delivered last, by key and request id."""

    def __init__(self, most_requests: int = MOST_REQUESTS) -> None:
        self._most = most_requests
        self._requests: OrderedDict[tuple[str, str], tuple[PastDelivery, ...]] = OrderedDict()

    def add(self, key: str, request_id: str, handout: PastDelivery) -> None:
        """Remember one delivery. Of a request that was delivered very often, the first and the last ones stay."""
        if len(request_id) > LONGEST_ID or len(handout.worker_id) > LONGEST_ID:
            return
        # Without the same delivery, if it is there: an event may be sent twice.
        known = tuple(handed for handed in self._requests.pop((key, request_id), ()) if handed != handout)
        if len(known) >= MOST_HANDOUTS:
            half = MOST_HANDOUTS // 2
            known = known[:half] + known[half + 1 :]
        self._requests[key, request_id] = (*known, handout)
        if len(self._requests) > self._most:
            self._requests.popitem(last=False)

    def of(self, key: str | None, request_id: object) -> tuple[PastDelivery, ...]:
        """Return what is known of a request, oldest first."""
        return self._requests.get((key, request_id), ()) if isinstance(key, str) and isinstance(request_id, str) else ()

    def held_by(self, key: str, worker_id: str | None) -> int:
        """Return how many unanswered requests of a key were last delivered to a worker, as far as that is known.

        One that it gave back counts until another worker receives it.
        """
        return sum(of == key and past[-1].worker_id == worker_id for (of, _), past in self._requests.items())

    def forget(self, key: str, request_id: str) -> None:
        """Forget a request that was answered."""
        self._requests.pop((key, request_id), None)
