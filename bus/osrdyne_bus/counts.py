"""What a bus has done so far. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

#: The outcome of a message that its peer took.
ACCEPTED = "accepted"
#: The outcome of a reply that was not sent, because too many to its caller waited.
DROPPED = "dropped"


@dataclass(slots=True)
class BusCounts:
    """Numbers that only grow, for as long as the bus is there."""

    #: Connections that were opened.
    connections: int = 0
    #: Messages that left or failed, by kind ("call", "message" or "reply") and outcome: ACCEPTED, DROPPED, or the name
    #: of the error.
    sent: Counter[tuple[str, str]] = field(default_factory=Counter)
    #: Messages that came, and how often a peer had used up its credit.
    received: int = 0
    stalls: int = 0
