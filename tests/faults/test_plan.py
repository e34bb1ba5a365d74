"""What is sent and what is injected, and when: decided from a seed and a number alone."""

from __future__ import annotations

import itertools
from random import Random

from faults import load
from faults.ledger import Row
from faults.plan import KINDS, SABOTAGE, order
from faults.report import caption, from_json, last_line, merged, to_json
from faults.run import Result


def first(kinds: list[str], number: int, seed: int = 1) -> list[str]:
    return list(itertools.islice(order(kinds, Random(seed)), number))


def test_every_kind_of_fault_comes_once_before_any_comes_twice() -> None:
    assert set(first(list(KINDS), len(KINDS))) == set(KINDS)


def test_the_same_seed_gives_the_same_order_and_another_seed_gives_another() -> None:
    assert first(list(KINDS), 50) == first(list(KINDS), 50)
    assert first(list(KINDS), 50) != first(list(KINDS), 50, seed=2)


def test_no_kind_of_fault_follows_itself() -> None:
    assert all(key != two for key, two in itertools.pairwise(first(["a", "b", "c"], 200)))


def test_no_fault_loses_requests_on_purpose_unless_the_command_asks_for_it() -> None:
    assert not KINDS.keys() & SABOTAGE.keys()


def test_a_client_calls_every_sort_of_key_and_calls_cold_ones_again() -> None:
    asked = [load.ask("c", number) for number in range(600)]
    keys = [request.key for request in asked]
    assert {*load.WARM, load.CRASHES, load.DEAD} < set(keys)
    cold = [key for key, _ in itertools.groupby(key for key in keys if key.startswith(load.COLD))]
    assert len(cold) > len(set(cold)) == load.COLD_KEYS
    assert {request.wants_reply for request in asked if request.order == "crash:"} == {True, False}


def test_a_request_is_recognized_by_its_body_whatever_it_asks_for() -> None:
    assert load.name_in(load.Ask("k", "crash:").body("c-7")) == load.name_in(load.Ask("k").body("c-7")) == "c-7"


def test_two_runs_become_one_account() -> None:
    rows = [Row("cut", 1, 10, 9, 1, 0, 0, 0, 2, 0, 0.5)]
    results = [Result("4.0", 7, rows), Result("4.3", 7, [Row("cut", 1, 6, 3, 0, 1, 1, 1, 0, 1, 3.0)])]
    assert [from_json(to_json(result)) for result in results] == results
    assert [row.outage for row in merged(results)] == [3.0]
    assert last_line(results) == (
        "faults: injected=2 requests=16 answered=12 poisoned=1 lost_by_broker=1 lost=1 duplicates=2 redelivered=1"
    )


def test_the_caption_has_the_p99_of_requests_beside_sprays_over_all_runs() -> None:
    took = [{"refusals": [float(number) for number in range(first, 101, 2)]} for first in (1, 2)]
    results = [Result(version, 1, beside_sprays=beside) for version, beside in zip(("4.0", "4.3"), took, strict=True)]
    assert caption(results).endswith(" Beside sprays of keys, p99 of refusals 99 ms (100 requests).")
    assert "sprays" not in caption([Result("4.0", 1)])
