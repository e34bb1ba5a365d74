"""What cannot be started has no part in the recommendation."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from osrdyne_pipeline.recommendation.advice import AdviceRequest, KnownCalls, recommend
from osrdyne_pipeline.recommendation.outcome import Recommendation
from osrdyne_pipeline.recommendation.text import render
from osrdyne_pipeline.schemas import STARTS
from osrdyne_pipeline.small.engine import SmallEngine
from tests.pipeline.tables.histories import DAY, HOUR, MONDAY, the_day

WEEKS = 6


def recommended(*starts: dict[str, Any]) -> Recommendation:
    """The recommendation for four keys that are called each day, and for XX, which is called each hour."""
    asked = [(f"k{number}", day * DAY + number * HOUR) for day in range(7 * WEEKS) for number in range(4)]
    asked += [("XX", hour * HOUR) for hour in range(24 * 7 * WEEKS)]
    rows = [
        {
            "key": key,
            "request_id": f"{key}-{number}",
            "number": 1,
            "seen_ms": MONDAY + at,
            "received_ms": None if key == "XX" else MONDAY + at,
            "done_ms": MONDAY + at + 5000,
        }
        for number, (key, at) in enumerate(asked)
    ]
    classes = [{"key": key, "class": "steady"} for key in sorted({key for key, _ in asked})]
    least = {"started": 0, "failed": 0, "failed_since": 0, "good_ms": None, "failed_ms": None, "day": the_day(0)}
    with SmallEngine.open("1g") as engine:
        for name, table in (
            ("requests", pa.Table.from_pylist(rows)),
            ("key_classes", pa.Table.from_pylist(classes)),
            ("starts", pa.Table.from_pylist([least | given for given in starts], schema=STARTS)),
        ):
            engine.connection.register(name, table)
        return recommend(KnownCalls.of(engine), AdviceRequest(), "core")


def test_a_key_whose_starts_all_fail_gets_no_advice_on_delays() -> None:
    fails = {"key": "XX", "failed": 30, "failed_since": 30, "failed_ms": MONDAY}
    found = recommended(fails, {"key": "k0", "started": 40, "good_ms": MONDAY})
    assert (found.left_out, found.failing, found.keys) == (1, ("XX",), 4)
    assert "XX" not in {override.key for override in found.overrides}
    assert "left out, because every start fails: 'XX'" in render(found)


@pytest.mark.parametrize("good_ms", [None, MONDAY + HOUR])
def test_a_key_that_can_be_started_or_has_no_facts_has_its_part(good_ms: int | None) -> None:
    known = [{"key": "XX", "started": 1, "failed": 9, "good_ms": good_ms, "failed_ms": MONDAY}] if good_ms else []
    found = recommended(*known)
    assert (found.left_out, found.keys) == (0, 5)
    assert "left out" not in render(found)
