"""How long programs wait before they try again."""

from __future__ import annotations

import pytest

from osrdyne_protocol.pauses import back_off, jittered


@pytest.mark.parametrize(("failures", "pause"), [(0, 0.5), (1, 0.5), (2, 1.0), (4, 4.0), (7, 30.0), (1_000_000, 30.0)])
def test_each_failure_doubles_the_pause_up_to_the_limit(failures: int, pause: float) -> None:
    assert back_off(failures) == pause


def test_pauses_of_programs_that_failed_together_differ_and_are_no_shorter_than_half() -> None:
    pauses = {jittered(3, first=0.1, limit=5.0) for _ in range(100)}
    assert len(pauses) > 50
    assert min(pauses) >= 0.2
    assert max(pauses) <= 0.4
