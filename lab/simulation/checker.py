"""The checker: reads the history of a run that is over and says what was lost and which invariants were broken.

Pure. It knows nothing of the daemon's inner state: only what the broker, the clients, the workers and the engine
saw. It cannot see invariant 9, that no password appears (docs/explain/invariants.md).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from simulation.checking_daemon import DaemonChecks
from simulation.checking_requests import RequestChecks
from simulation.checking_suspects import SuspectChecks
from simulation.findings import Verdict
from simulation.model import Event
from simulation.world import Outcome


def check(outcome: Outcome) -> Verdict:
    """Judge a run."""
    verdict = Verdict()
    parts = (RequestChecks(outcome, verdict), DaemonChecks(outcome, verdict), SuspectChecks(outcome, verdict))
    handlers: dict[str, list[Callable[[Event], None]]] = defaultdict(list)
    for part in parts:
        for kind, handler in part.handlers.items():
            handlers[kind].append(handler)
    for event in outcome.history.events:
        for handler in handlers.get(event.kind, ()):
            handler(event)
    for part in parts:
        part.conclude()
    return verdict
