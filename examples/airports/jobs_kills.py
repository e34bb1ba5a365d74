"""Which processes `make demo-jobs` kills, and when: after so many jobs that are done. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

#: The last kill comes when this part of the jobs is done: the rest shows that everything goes on after it.
LAST = 0.9


@dataclass(frozen=True, slots=True, order=True)
class Kill:
    """One kill."""

    #: Jobs that are done before it.
    after: int
    #: `worker`, `broker` or `redo`.
    what: str


def plan(jobs: int, kills: Mapping[str, int], random: Random) -> list[Kill]:
    """Return the kills in their order, as many of each kind as is said, spread over the jobs by chance."""
    planned = []
    for what, count in kills.items():
        for number in range(count):
            part = (number + random.random()) / count
            planned.append(Kill(int(LAST * part * jobs), what))
    return sorted(planned)
