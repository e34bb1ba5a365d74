"""What all packages take for a timeout, and what they refuse."""

from __future__ import annotations

import math
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest

from osrdyne_protocol.durations import LONGEST_TIMEOUT_SECONDS, timeout_of
from osrdyne_protocol.errors import InvalidTimeout, OsrdyneError


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (5, 5.0),
        (0.001, 0.001),
        (Fraction(1, 2), 0.5),
        (LONGEST_TIMEOUT_SECONDS, LONGEST_TIMEOUT_SECONDS),
        *((value, math.inf) for value in (math.inf, 2 * LONGEST_TIMEOUT_SECONDS, 1e300, 10**400)),
        pytest.param(10**5000, math.inf, id="too many digits for a text"),
    ],
)
def test_a_timeout_is_a_number_of_seconds_and_beyond_centuries_it_has_no_end(value: Any, seconds: float) -> None:
    assert timeout_of(value) == seconds


@pytest.mark.parametrize(
    "value",
    [
        *(math.nan, -math.inf, -1, 0, 0.0, True, False, None),
        pytest.param(-(10**5000), id="too many digits for a text"),
        *("5", b"5", [], {}, 1j, timedelta(seconds=5), "x" * 10_000),
    ],
)
def test_all_else_is_refused_by_an_error_that_names_it_and_says_how_to_wait_without_an_end(value: Any) -> None:
    with pytest.raises(
        InvalidTimeout, match=r"^pickup_timeout=.* above 0; math.inf is a wait without an end$"
    ) as refused:
        timeout_of(value, "pickup_timeout")
    assert isinstance(refused.value, OsrdyneError)
    assert isinstance(refused.value, ValueError)
    assert len(str(refused.value)) < 200
