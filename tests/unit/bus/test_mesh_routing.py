"""Where the mesh of the tests sends messages. What the tests of the bus show on it stands on this."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.mesh.routing import BALANCED, MULTICAST, RouterState, chosen, destinations, paths, semantics

NAMES = "ABCDEF"


def states(links: str, **addresses: str) -> Mapping[str, RouterState]:
    """The states of routers that are connected: `states("AB BC", C="maps")`."""
    pairs = [tuple(word) for word in links.split()]
    names = sorted({name for pair in pairs for name in pair} | set(addresses))
    return {
        name: RouterState(
            name,
            1,
            frozenset({b for a, b in pairs if a == name} | {a for a, b in pairs if b == name}),
            frozenset(addresses.get(name, "").split()),
        )
        for name in names
    }


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("osrdyne/bus/rpc/multicast/x/y", MULTICAST),
        ("osrdyne/bus/rpc/multicast", MULTICAST),
        ("osrdyne/bus/rpc/multicasts/x", BALANCED),
        ("osrdyne/bus/rpc/multicast/x/near/y", BALANCED),
        ("other", BALANCED),
    ],
)
def test_the_longest_prefix_of_whole_words_counts(address: str, expected: str) -> None:
    prefixes = {
        "osrdyne/bus/rpc/multicast": MULTICAST,
        "osrdyne/bus/rpc/multicast/x/near": BALANCED,
        "osrdyne": BALANCED,
    }
    assert semantics(address, prefixes) == expected


def test_in_the_figure_of_the_specification_every_router_is_one_step_away() -> None:
    figure = states("AB AC AD BC BD CD")
    assert paths(figure, "C") == {"A": (1, "A"), "B": (1, "B"), "D": (1, "D")}


def test_a_way_round_is_taken_where_the_short_one_is_gone() -> None:
    assert paths(states("AB BD AC CE ED"), "A")["D"] == (2, "B")
    assert paths(states("AC CE ED"), "A")["D"] == (3, "C")


def test_a_step_counts_only_where_both_routers_name_each_other() -> None:
    found = dict(states("AB"))
    found["B"] = RouterState("B", 2, frozenset(), frozenset())
    assert paths(found, "A") == {}


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)).filter(lambda two: two[0] != two[1])))
def test_each_step_leads_nearer_so_that_no_message_goes_in_a_circle(pairs: list[tuple[str, str]]) -> None:
    found = states(" ".join("".join(two) for two in pairs))
    ways = {name: paths(found, name) for name in found}
    for source in found:
        for target, (steps, first) in ways[source].items():
            assert steps == (1 if first == target else ways[first][target][0] + 1)
            assert ways[target][source][0] == steps


def test_the_nearest_router_with_a_receiver_comes_first() -> None:
    found = states("AB BC", A="maps", C="maps roads")
    reach = {name: steps for name, (steps, _) in paths(found, "C").items()}
    assert destinations("maps", found, {**reach, "C": 0}) == ["C", "A"]
    assert destinations("roads", found, reach) == []


@pytest.mark.parametrize(
    ("ways", "expected"),
    [([(0, 0), (1, 0)], 0), ([(0, 1), (1, 0)], 0), ([(0, 2), (1, 0)], 1), ([(2, 0), (1, 5)], 0)],
)
def test_the_nearest_way_is_taken_unless_more_waits_on_it_than_a_farther_one_is_away(
    ways: list[tuple[int, int]], expected: int
) -> None:
    assert chosen(ways) == expected
