"""What is run once more, what is flaky, and how the run says what came of it."""

from __future__ import annotations

import pytest

import contained
import verdict
from tests.unit.repo.ended_tiers import failed, run_of
from tier_run import Run


def test_the_closing_line_adds_up_and_counts_what_was_left_behind_as_an_error() -> None:
    runs = [run_of("unit", passed=3, errors=1), run_of("broker", code=contained.LEFT, passed=4, failed=2)]

    assert verdict.closing_line(runs, 61.5).strip("= ") == "2 failed, 2 error, 7 passed in 61.50s"
    assert "left something behind" in verdict.row(runs[1])


@pytest.mark.parametrize("tier", ["broker", "drivers", "pipeline"])
def test_tests_on_real_engines_that_fail_are_run_once_more(tier: str) -> None:
    assert verdict.may_be_chance(failed(tier, "a", "b"))


@pytest.mark.parametrize(
    "run",
    [
        failed("unit", "a"),
        failed("simulation", "a"),
        failed("broker", *map(str, range(11))),
        failed("broker", code=2),
        failed("broker", "a", code=2),
        failed("broker", code=contained.LEFT),
        run_of("broker"),
    ],
    ids=["unit", "simulation", "many", "no collection", "interrupted", "left behind", "passed"],
)
def test_what_no_second_run_can_excuse_is_not_run_again(run: Run) -> None:
    assert not verdict.may_be_chance(run)


def test_a_test_that_passes_the_second_time_is_flaky_and_one_that_does_not_has_failed() -> None:
    run = failed("broker", "a", "b", failed=2, passed=10)

    verdict.judge(run, failed("broker", "b", failed=1, passed=1))

    assert (run.flaky, run.failed_tests, run.failed) == (["a"], ["b"], True)
    assert run.counts == {"failed": 1, "passed": 10, "flaky": 1}
    assert run.failures == ["flaky: a"]


def test_a_tier_whose_failed_tests_all_pass_the_second_time_has_passed() -> None:
    run = failed("broker", "a", passed=10, errors=1)

    verdict.judge(run, run_of("broker", passed=1))

    assert not run.failed
    assert verdict.row(run).split()[-4:] == ["10", "passed,", "1", "flaky"]
    assert verdict.closing_line([run], 1.0).strip("= ") == "10 passed, 1 flaky in 1.00s"


@pytest.mark.parametrize("code", [2, 4, contained.LEFT])
def test_a_second_run_that_does_not_come_to_its_end_excuses_nothing(code: int) -> None:
    run = failed("broker", "a", failed=1)

    verdict.judge(run, run_of("broker", code))

    assert (run.failed, run.flaky) == (True, [])
