"""The demo of the relay counts what is lost, ran twice or failed other than its error says."""

from __future__ import annotations

import inspect

import pytest

from examples.airports.relay_account import ANSWERED, MAY_HAVE_RUN, NOT_RUN, account
from osrdyne_relay import errors


def test_answered_requests_and_errors_that_are_true_make_a_good_account_and_its_line() -> None:
    found = account(4, {0: ANSWERED, 1: "NotCollected", 2: "NodeLost", 3: "NodeLost"}, [0, 3], wrong=0)

    assert found.good
    assert found.last_line == "relay: requests=4 answered=1 failed=3 lost=0 twice=0"


@pytest.mark.parametrize(
    ("ends", "runs"),
    [({}, []), ({0: ANSWERED}, []), ({0: "NotCollected"}, [0]), ({0: "ValueError"}, [0])],
    ids=["no end", "answered and never run", "run although it was not collected", "no error of the relay"],
)
def test_a_request_without_an_end_or_with_one_that_is_not_true_is_lost(ends: dict[int, str], runs: list[int]) -> None:
    found = account(1, ends, runs, wrong=0)

    assert (found.lost, found.answered, found.good) == (1, 0, False)


def test_a_request_that_ran_twice_or_has_a_wrong_answer_makes_a_bad_account() -> None:
    assert account(1, {0: ANSWERED}, [0, 0], wrong=0).twice == 1
    assert not account(1, {0: ANSWERED}, [0, 0], wrong=0).good
    assert not account(1, {0: ANSWERED}, [0], wrong=1).good


def test_the_demo_knows_what_each_error_of_a_caller_says() -> None:
    known = {
        name
        for name, error in inspect.getmembers(errors, inspect.isclass)
        if issubclass(error, errors.RelayError) and error is not errors.RelayError
    }
    # Errors of serving nodes, of workers and of streams: no caller of the demo gets them.
    others = {"CallRefused", "CallerGone", "NodeStopping", "StreamLost", "UnknownRequest", "UnreadableRecord"}

    assert known - others == NOT_RUN | MAY_HAVE_RUN
