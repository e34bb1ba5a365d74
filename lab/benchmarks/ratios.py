"""Ratios of two sides measured in turns, and how they are judged. Pure.

Only ratios within one run mean something on a machine that others use too: the two values of a round were measured
next to each other, so that what slowed one down slowed the other. The median of the rounds' ratios is the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of several values, the lowest and the highest."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Raises ValueError without values."""
        if not values:
            raise ValueError("no values")
        return cls(median(values), min(values), max(values))


def ratios(ours: Sequence[float], peer: Sequence[float]) -> Spread:
    """Return ours divided by the peer's, round by round. Raises ValueError when the rounds do not pair up."""
    if len(ours) != len(peer):
        raise ValueError(f"{len(ours)} rounds of ours and {len(peer)} of the peer's")
    if not all(peer):
        raise ValueError("the peer did nothing in a round")
    return Spread.of([our / other for our, other in zip(ours, peer, strict=True)])


@dataclass(frozen=True, slots=True)
class Target:
    """What a ratio should be: at least `limit`, or at most with `at_most`."""

    limit: float
    at_most: bool = False

    def met_by(self, ratio: Spread) -> bool:
        """Judge by the median: the extremes of a shared machine belong to its other users."""
        return ratio.median <= self.limit if self.at_most else ratio.median >= self.limit

    def __str__(self) -> str:
        return f"{'<=' if self.at_most else '>='} {self.limit:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the result. Without a peer it has no ratio, and without a target its ratio is not judged."""

    measure: str
    unit: str
    ours: Spread
    peer: Spread | None = None
    #: What stands in the column of the peer.
    peer_name: str = ""
    ratio: Spread | None = None
    target: Target | None = None

    @property
    def met(self) -> bool | None:
        """Whether the ratio meets the target; None without one of them."""
        return None if self.target is None or self.ratio is None else self.target.met_by(self.ratio)


def compared(
    measure: str,
    unit: str,
    ours: Sequence[float],
    peer: Sequence[float],
    peer_name: str,
    target: Target | None = None,
) -> Row:
    """Return the row of two sides that were measured in turns."""
    return Row(
        measure=measure,
        unit=unit,
        ours=Spread.of(ours),
        peer=Spread.of(peer),
        peer_name=peer_name,
        ratio=ratios(ours, peer),
        target=target,
    )
