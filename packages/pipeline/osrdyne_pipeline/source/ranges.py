"""Who reads what of a stream: ranges of offsets, and what retention has taken away. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

#: Fewer events than this are not worth a reader of their own.
LEAST = 20_000


@dataclass(frozen=True)
class OffsetRange:
    """Offsets from `start` to before `end`; lost where retention was faster, which is known already."""

    start: int
    end: int
    lost: bool = False


def plan(start: int, end: int, first: int, readers: int) -> list[OffsetRange]:
    """Return the ranges that `readers` read at once, of a stream that begins at `first` now; none for nothing."""
    ranges = []
    if start < min(first, end):
        ranges.append(OffsetRange(start, min(first, end), lost=True))
        start = min(first, end)
    count = max(1, min(readers, (end - start) // LEAST))
    cuts = [start + (end - start) * part // count for part in range(count + 1)]
    return ranges + [OffsetRange(low, high) for low, high in pairwise(cuts) if low < high]
