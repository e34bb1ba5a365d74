"""Where a mesh sends messages: addresses by their longest prefix, and routers by the shortest path. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

#: Addresses that are delivered to all their receivers; all others to one, a near one where it has no more to do.
MULTICAST = "multicast"
BALANCED = "balanced"


@dataclass(frozen=True, slots=True)
class RouterState:
    """What a router says of itself to all others. One with a higher number replaces it."""

    router: str
    number: int
    neighbours: frozenset[str]
    #: Addresses with receivers there.
    addresses: frozenset[str]


def semantics(address: str, prefixes: Mapping[str, str]) -> str:
    """Return how messages to an address are delivered: as its longest prefix says, BALANCED where none fits."""
    fitting = [prefix for prefix in prefixes if address == prefix or address.startswith(f"{prefix}/")]
    return prefixes[max(fitting, key=len)] if fitting else BALANCED


def paths(states: Mapping[str, RouterState], source: str) -> dict[str, tuple[int, str]]:
    """Return for each router that `source` can reach how many steps away it is, and the neighbour that leads there.

    A step counts where both routers name each other. Of several shortest paths the first by name is taken.
    """
    found: dict[str, tuple[int, str]] = {}
    edge = [source]
    distance = 0
    while edge:
        distance += 1
        following: dict[str, str] = {}
        for router in edge:
            for name in sorted(neighbours(states, router)):
                if name != source and name not in found:
                    following.setdefault(name, name if router == source else found[router][1])
        found |= {name: (distance, first) for name, first in following.items()}
        edge = sorted(following)
    return found


def neighbours(states: Mapping[str, RouterState], router: str) -> set[str]:
    """Return the neighbours of a router that name it, too."""
    state = states.get(router)
    return (
        {neighbour for neighbour in state.neighbours if neighbour in states and router in states[neighbour].neighbours}
        if state
        else set()
    )


def destinations(address: str, states: Mapping[str, RouterState], reach: Mapping[str, int]) -> list[str]:
    """Return the routers with receivers of an address, the nearest first. `reach` has the distance of each router."""
    having = [name for name in reach if address in states[name].addresses]
    return sorted(having, key=lambda name: (reach[name], name))


def chosen(ways: Iterable[tuple[int, int]]) -> int:
    """Return the index of the way for a message to one receiver. Raises ValueError without ways.

    Each way is how far its router is, and how many messages are on it. The sum counts, so that the nearest receiver is
    taken only as long as it keeps up.
    """
    sums = [distance + held for distance, held in ways]
    return sums.index(min(sums))
