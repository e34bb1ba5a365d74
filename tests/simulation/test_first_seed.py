"""Which seeds are run: those that are asked for, or others each time, which can be run again."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.simulation.many_seeds import many


def run(module: str, first: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", module, "--seeds", "1", "--first", first]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=200)


@pytest.mark.parametrize("module", ["simulation", "simulation.jobs", "simulation.relay"])
def test_seeds_that_are_chosen_by_chance_are_printed_and_can_be_run_again(module: str) -> None:
    found = run(module, "random")
    (first,) = re.findall(r"the first seed is (\d+): SEEDS=1 FIRST=\1 repeats this run", found.stderr)
    assert run(module, first).stdout == found.stdout


def test_a_run_of_all_tests_has_ten_thousand_seeds_from_the_first_one_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OSRDYNE_FIRST_SEED", "647292441")
    assert [seed for part in many() for seed in part] == list(range(647292441, 647292441 + 10_000))
