"""The checker of runs in which requests end workers of the worker library: what that costs others."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping

from osrdyne_protocol import statuses
from simulation.findings import Checks, Verdict, name_of
from simulation.model import Event
from simulation.model import history as kinds
from simulation.scenario import CRASH, Kind
from simulation.world import NAMES, Outcome


class SuspectChecks(Checks):
    """Invariant 5 of docs/explain/invariants.md, as far as it is about requests of one key."""

    def __init__(self, outcome: Outcome, verdict: Verdict) -> None:
        super().__init__(outcome, verdict)
        self._deaths: list[float] = []
        self._died_of: Counter[str] = Counter()
        self._queued: dict[str, float] = {}
        self._served: dict[str, float] = {}
        self._statuses: defaultdict[str, set[str]] = defaultdict(set)
        self.handlers: Mapping[str, Callable[[Event], None]] = {
            "died": self._on_death,
            kinds.ROUTED: self._on_routed,
            "served": self._on_served,
            "answered": self._on_answered,
        }

    def _on_death(self, event: Event) -> None:
        self._deaths.append(event.at)
        self._died_of[event.place] += 1

    def _on_served(self, event: Event) -> None:
        self._served.setdefault(event.place, event.at)

    def _on_answered(self, event: Event) -> None:
        self._statuses[event.place].add(str(event.detail))

    def _on_routed(self, event: Event) -> None:
        if event.message is not None and event.place.startswith(NAMES.request_queue_prefix):
            self._queued.setdefault(name_of(event.message), event.at)

    def conclude(self) -> None:
        if self._scenario.kind is not Kind.SUSPECTS:
            return
        bad = [request for request in self._scenario.requests if request.do == CRASH]
        for plan in bad:
            most = self._scenario.pool.delivery_limit + 1
            if self._died_of[plan.name] > most:
                self._break(5, f"{plan.name} ended {self._died_of[plan.name]} workers; {most} are allowed")
        # Of what was begun at once, any may be what ended the worker: it fails beside others once more.
        most = 2 if self._scenario.all_begun else 1
        for plan in self._scenario.requests:
            if plan in bad:
                continue
            if statuses.DELIVERY_LIMIT in self._statuses[plan.name]:
                self._break(5, f"{plan.name} was buried, and ends no worker")
            until = self._served.get(plan.name, self._outcome.seconds)
            lost = sum(self._queued.get(plan.name, until) < at < until for at in self._deaths)
            if len(bad) == 1 and lost > most:
                self._break(5, f"{plan.name} waited for {lost} starts of workers; {most} are allowed")
