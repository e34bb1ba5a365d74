"""Which tiers run side by side, and how the run says what came of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import contained
import run_tests
from run_tests import Run, Runner


def run_of(tier: str, code: int = 0, **counts: int) -> Run:
    """A tier that has ended, or that is still on its way."""
    process = subprocess.Popen.__new__(subprocess.Popen)
    process.returncode = code
    return Run(tier, process, Path("x"), Path("x"), 0.0, code=code, seconds=1.0, counts=counts)


@pytest.fixture(params=[2, 8])
def runner(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Runner:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(request.param)))
    return Runner(["unit", "broker", "roles"], False, [])


def test_the_tiers_that_run_together_need_no_more_cores_than_there_are(runner: Runner) -> None:
    started = []
    for tier in run_tests.PLANS:
        if runner.fits(tier):
            runner.running.append(run_of(tier))
            started.append(tier)

    load = sum(run_tests.PLANS[tier].load for tier in started)
    assert started[0] == "unit"
    assert load <= runner._cores
    assert (len(started) == 1) == (runner._cores == 2)


def test_a_tier_that_needs_more_cores_than_there_are_runs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    runner = Runner(["unit", "broker"], False, [])

    assert runner.fits("unit")
    runner.running.append(run_of("unit"))
    assert not runner.fits("broker")


def test_every_tier_of_the_tree_is_found_and_the_planned_ones_come_first() -> None:
    found = run_tests.tiers()

    assert {"unit", "broker", "drivers", "roles"} <= set(found)
    assert found[0] == "unit"
    assert "engines" not in found


def test_the_fast_run_selects_in_every_tier_but_the_unit_tests() -> None:
    assert "fast" not in run_tests.command("unit", True, [])
    assert run_tests.command("broker", True, ["-k", "x"])[-4:] == ["-m", "fast", "-k", "x"]


@pytest.mark.parametrize(
    "line, counts",
    [
        ("=== 2 failed, 10 passed in 3.21s ===", {"failed": 2, "passed": 10}),
        ("\x1b[32m=== \x1b[1m1 passed\x1b[0m in 61.00s (0:01:01) ===\x1b[0m", {"passed": 1}),
        ("7 passed, 1 error in 0.50s", {"passed": 7, "error": 1}),
        ("=== no tests ran in 0.01s ===", {}),
        ("tests/unit/test_run_tests.py ..... [100%]", {}),
    ],
)
def test_counts_come_from_pytests_closing_line(line: str, counts: dict[str, int]) -> None:
    assert run_tests.counts_of(line) == counts


def test_the_closing_line_adds_up_and_counts_what_was_left_behind_as_an_error() -> None:
    runs = [run_of("unit", passed=3, errors=1), run_of("broker", code=contained.LEFT, passed=4, failed=2)]

    assert run_tests.closing_line(runs, 61.5).strip("= ") == "2 failed, 2 error, 7 passed in 61.50s"
    assert "left something behind" in run_tests.row(runs[1])


def test_an_empty_selection_is_no_failure_and_anything_else_is() -> None:
    assert [run_of("x", code=code).failed for code in (0, 5, 1, 2, contained.LEFT)] == [False, False, True, True, True]
