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


class OutcomeCounter:
    """A `with` block counts its outcome as that of a message. Blocks may overlap: this has no state of its own."""

    __slots__ = ("_counts", "_kind")

    def __init__(self, counts: BusCounts, kind: str) -> None:
        """`kind` is that of the messages."""
        self._counts = counts
        self._kind = kind

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._counts.sent[self._kind, ACCEPTED if kind is None else kind.__name__] += 1
