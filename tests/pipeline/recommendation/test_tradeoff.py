"""Spending hours: the hull of a key's options, and greedy beside every choice there is."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from osrdyne_pipeline.recommendation.tradeoff import even, frontier, spend


def test_only_options_on_the_lower_hull_are_kept() -> None:
    hours = np.array([4.0, 1.0, 2.0, 3.0, 5.0, 2.5])
    cold = np.array([2.0, 10.0, 9.0, 3.0, 2.0, 12.0])
    # 2 hours save 1 of what 3 hours save 7 of; 5 hours save nothing more than 4; 2.5 are worse than 1
    found = frontier(hours, cold)
    assert found.option.tolist() == [1, 3, 0]
    assert (found.hours.tolist(), found.cold.tolist()) == ([1, 3, 4], [10, 3, 2])


def test_of_options_that_cost_the_same_the_best_is_the_cheapest() -> None:
    assert frontier(np.array([1.0, 1.0, 2.0]), np.array([5.0, 4.0, 4.0])).option.tolist() == [1]


@pytest.mark.parametrize("seed", range(20))
def test_greedy_has_as_few_cold_starts_as_any_choice_within_its_hours(seed: int) -> None:
    rng = np.random.default_rng(seed)
    options = [(rng.integers(0, 30, 5).astype(float), rng.integers(0, 50, 5).astype(float)) for _ in range(4)]
    frontiers = [frontier(*option) for option in options]
    cheapest = sum(frontier.hours[0] for frontier in frontiers)
    # Stopped where the next step no longer fits at all, which is where greedy's answer is on the hull of all choices
    for enough in (60.0, 40.0, 20.0, 0.0):
        found = spend(frontiers, np.inf, enough)
        best = min(
            sum(cold[choice] for (_, cold), choice in zip(options, choices, strict=True))
            for choices in product(range(5), repeat=4)
            if sum(hours[choice] for (hours, _), choice in zip(options, choices, strict=True)) <= found.hours
        )
        assert found.cold == best
        assert found.hours >= cheapest


@pytest.mark.parametrize("seed", range(10))
def test_a_budget_is_kept_and_misses_the_best_by_less_than_one_step(seed: int) -> None:
    rng = np.random.default_rng(seed)
    options = [(rng.integers(0, 30, 5).astype(float), rng.integers(0, 50, 5).astype(float)) for _ in range(4)]
    frontiers = [frontier(*option) for option in options]
    budget = sum(frontier.hours[0] for frontier in frontiers) + 20
    found = spend(frontiers, budget)
    best = min(
        sum(cold[choice] for (_, cold), choice in zip(options, choices, strict=True))
        for choices in product(range(5), repeat=4)
        if sum(hours[choice] for (hours, _), choice in zip(options, choices, strict=True)) <= budget
    )
    largest = max(float(-np.diff(frontier.cold).min(initial=0)) for frontier in frontiers)
    assert found.hours <= budget
    assert best <= found.cold <= best + largest


def test_as_many_keys_as_asked_are_held_to_a_rate_the_cheapest_first() -> None:
    cheap, dear, hopeless = (
        frontier(np.array([0.0, 1.0]), np.array([10.0, 1.0])),
        frontier(np.array([0.0, 50.0]), np.array([10.0, 1.0])),
        frontier(np.array([0.0]), np.array([10.0])),
    )
    requests = np.array([10, 10, 10])
    held = even([dear, cheap, hopeless], requests, 1 / 3, 0.5)
    assert [len(budget.hours) for budget in held] == [2, 1, 1]
    assert held[1].cold.tolist() == [1.0]
    assert [len(budget.hours) for budget in even([dear, cheap, hopeless], requests, 2 / 3, 0.5)] == [1, 1, 1]
