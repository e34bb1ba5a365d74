"""Durations of any size: none is taken for infinite, ends in another error, or fills a line."""

from __future__ import annotations

import pytest

from osrdyne_protocol.durations import LONGEST_TIMEOUT_SECONDS, parse_seconds


@pytest.mark.parametrize(
    "value",
    [f"P{'9' * 400}D", f"PT{'9' * 309}S", f"PT{'9' * 5000}S", 10**400, 1e300, LONGEST_TIMEOUT_SECONDS * 2, "P9999999D"],
)
def test_a_duration_of_more_than_300_years_is_refused_in_a_short_line(value: object) -> None:
    with pytest.raises(ValueError, match=r"is longer than 317 years|is not a duration of zero or more") as found:
        parse_seconds(value)

    assert len(str(found.value)) < 200


def test_the_longest_duration_can_be_counted_in_nanoseconds() -> None:
    assert int(parse_seconds(LONGEST_TIMEOUT_SECONDS) * 1e9) == 10**19
