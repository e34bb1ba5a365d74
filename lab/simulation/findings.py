"""What the checker finds, and what all of its parts know of a run."""

from __future__ import annotations

from dataclasses import dataclass, field

from simulation.model.message import Message
from simulation.scenario import HANG
from simulation.world import Outcome


@dataclass(slots=True)
class Verdict:
    """What the checker found. Each list holds a sentence a finding."""

    lost: list[str] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)
    duplicated: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    #: (number of the invariant in docs/explain/invariants.md, what happened)
    broken: list[tuple[int, str]] = field(default_factory=list)
    requests: int = 0
    #: Requests that the broker confirmed and then lost itself: no mistake of ours.
    lost_by_broker: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not (self.lost or self.unanswered or self.unexpected or self.broken)

    def findings(self) -> list[str]:
        """Return every finding, one a line."""
        return [
            *(f"lost: {request}" for request in self.lost),
            *(f"unanswered: {request}" for request in self.unanswered),
            *(f"unexpected: {finding}" for finding in self.unexpected),
            *(f"invariant {number}: {text}" for number, text in self.broken),
        ]


def name_of(message: Message) -> str:
    """Return the name of the request that a message is about."""
    return message.body.decode(errors="replace") or message.correlation_id or ""


class Checks:
    """A part of the checker. It adds what it finds to the verdict."""

    def __init__(self, outcome: Outcome, verdict: Verdict) -> None:
        self._outcome = outcome
        self._scenario = outcome.scenario
        self._verdict = verdict
        self._faults = {fault.what for fault in self._scenario.faults}

    def _had(self, *faults: str) -> bool:
        """Say whether the run had one of these faults."""
        return not self._faults.isdisjoint(faults)

    def _without_ttl(self) -> bool:
        """Say whether requests may wait for ever: one that is published without the policy never expires, and
        holds up those behind it when no worker takes it.
        """
        return self._had("policy removed") and (
            any(not key.healthy for key in self._scenario.keys)
            or any(request.do == HANG for request in self._scenario.requests)
        )

    def _break(self, number: int, text: str) -> None:
        if (number, text) not in self._verdict.broken:
            self._verdict.broken.append((number, text))
