"""How long programs wait before they try again."""

from __future__ import annotations

import pytest

from osrdyne_runtime.retry import Retry, back_off, jittered


@pytest.mark.parametrize(("failures", "pause"), [(0, 0.5), (1, 0.5), (2, 1.0), (4, 4.0), (7, 30.0), (1_000_000, 30.0)])
def test_each_failure_doubles_the_pause_up_to_the_limit(failures: int, pause: float) -> None:
    assert back_off(failures) == pause


def test_pauses_of_programs_that_failed_together_differ_and_are_not_shorter_than_half() -> None:
    pauses = {jittered(3, first=0.1, limit=5.0) for _ in range(100)}
    assert len(pauses) > 50
    assert min(pauses) >= 0.2
    assert max(pauses) <= 0.4


def test_the_failure_after_a_success_is_a_first_one() -> None:
    retry = Retry(first=1.0, limit=64.0)
    for _ in range(5):
        retry.failed()
    retry.worked()

    assert retry.failed() <= 1.0
    assert retry.failures == 1


def test_what_worked_for_long_enough_before_it_failed_was_a_success() -> None:
    retry = Retry(first=1.0, limit=64.0, stable_after=15.0)
    pauses = [retry.failed(worked_for) for worked_for in (0.0, 1.0, 15.0, 15.1, 0.0)]

    assert [0.5 <= pause / whole <= 1.0 for pause, whole in zip(pauses, (1.0, 2.0, 4.0, 1.0, 2.0), strict=True)] == [
        True
    ] * 5
