"""What is logged about an outage: a line when it begins, one a minute while it lasts, one when it ends."""

from __future__ import annotations

import logging

import pytest

from osrdyne_runtime import log_lines
from osrdyne_runtime.outages import OutageLog

BEGINS, LASTS, ENDS = (
    "the broker cannot be used; trying again",
    "the broker still cannot be used; trying again",
    "the broker can be used again",
)


@pytest.fixture
def outage() -> OutageLog:
    return OutageLog(logging.getLogger("test"), "the broker")


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.message for record in caplog.records]
    caplog.clear()
    return found


def test_an_outage_is_logged_when_it_begins_once_a_minute_and_when_it_ends(
    outage: OutageLog, caplog: pytest.LogCaptureFixture
) -> None:
    for now in range(150):
        outage.failed("refused", float(now))
    outage.over(150.0)

    assert lines(caplog) == [BEGINS, LASTS, LASTS, ENDS]


def test_the_message_of_a_library_has_reason_fields_and_length(caplog: pytest.LogCaptureFixture) -> None:
    outage = OutageLog(log_lines.logger("test"), "the broker", key="42")
    outage.failed("refused", 0.0)
    outage.over(12.34)

    assert lines(caplog) == [f'{BEGINS} reason="refused" key="42"', f'{ENDS} seconds=12.3 key="42"']


def test_nothing_is_logged_while_it_works(outage: OutageLog, caplog: pytest.LogCaptureFixture) -> None:
    outage.over(0.0)
    outage.over(100.0)

    assert lines(caplog) == []
    assert not outage.is_away


def test_a_new_reason_is_logged_at_once_but_not_one_that_differs_each_time(
    outage: OutageLog, caplog: pytest.LogCaptureFixture
) -> None:
    outage.failed("refused", 0.0)
    outage.failed("the certificate has expired", 1.0)
    outage.failed("refused", 2.0)
    assert lines(caplog) == [BEGINS, LASTS]

    for number in range(100):
        outage.failed(f"port {number}", 3.0)
    assert len(lines(caplog)) == 3


def test_what_comes_and_goes_does_not_fill_the_log(outage: OutageLog, caplog: pytest.LogCaptureFixture) -> None:
    for now in range(120):
        outage.failed("ended", float(now))
        outage.over(now + 0.5)

    assert lines(caplog) == [BEGINS, ENDS] * 2


def test_an_outage_soon_after_another_is_logged_once_it_lasts(
    outage: OutageLog, caplog: pytest.LogCaptureFixture
) -> None:
    outage.failed("ended", 0.0)
    outage.over(1.0)
    lines(caplog)
    for now in range(20, 35):
        outage.failed("refused", float(now))
    outage.over(35.0)

    assert lines(caplog) == [BEGINS, ENDS]


def test_failures_that_another_part_logs_are_tolerated(caplog: pytest.LogCaptureFixture) -> None:
    outage = OutageLog(logging.getLogger("test"), "the broker", tolerated=1)
    outage.failed("ended", 0.0)
    assert outage.is_away
    outage.over(1.0)
    assert lines(caplog) == []

    outage.failed("ended", 2.0)
    outage.failed("ended", 3.0)
    assert lines(caplog) == [BEGINS]


def test_what_fails_and_works_in_turn_is_logged_although_one_failure_is_tolerated(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outage = OutageLog(logging.getLogger("test"), "the broker", tolerated=1)
    for now in (0.0, 2.0, 4.0, 6.0):
        outage.failed("refused", now)
        outage.over(now + 1)
    assert lines(caplog) == [BEGINS, ENDS]

    for now in (100.0, 200.0, 300.0):
        outage.failed("refused", now)
        outage.over(now + 1)
    assert lines(caplog) == []
