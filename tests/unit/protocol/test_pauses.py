"""How long programs wait before they try again, and how often they log that it failed."""

from __future__ import annotations

import pytest

from osrdyne_protocol.pauses import LoggedFailures, back_off, jittered


@pytest.mark.parametrize(("failures", "pause"), [(0, 0.5), (1, 0.5), (2, 1.0), (4, 4.0), (7, 30.0), (1_000_000, 30.0)])
def test_each_failure_doubles_the_pause_up_to_the_limit(failures: int, pause: float) -> None:
    assert back_off(failures) == pause


def test_pauses_of_programs_that_failed_together_differ_and_are_no_shorter_than_half() -> None:
    pauses = {jittered(3, first=0.1, limit=5.0) for _ in range(100)}
    assert len(pauses) > 50
    assert min(pauses) >= 0.2
    assert max(pauses) <= 0.4


def test_a_failure_is_logged_when_it_begins_and_then_once_a_minute() -> None:
    logged = LoggedFailures()

    assert [now for now in range(200) if logged.due("the certificate has expired", float(now))] == [0, 60, 120, 180]


def test_another_failure_is_logged_at_once_and_so_is_one_after_success() -> None:
    logged = LoggedFailures()
    assert logged.due("nothing listens there", 0.0)

    assert logged.due("the certificate has expired", 1.0)
    assert not logged.due("nothing listens there", 2.0)
    logged.over()
    assert logged.due("nothing listens there", 3.0)
