"""The page of causes: each row has a test on a real pool, and the words that stand in the product are those there."""

from __future__ import annotations

import re

import pytest

from osrdyne_jobs.store.outcomes import LOST
from osrdyne_protocol import statuses
from testbed import ROOT
from testbed.causes import COMMAND, EVENTS, JOBS, METRICS, PYTHON, REPORT, STATUS, Cause, causes, masked

#: Where causes are made.
TESTS = [ROOT / "tests" / tier / "test_causes.py" for tier in ("broker", "drivers")]

ALL = causes()


def test_each_cause_of_the_page_is_made_by_a_test() -> None:
    made = "".join(file.read_text() for file in TESTS)
    assert [title for title in ALL if f'"{title}"' not in made] == []
    assert len(ALL) >= 25


@pytest.mark.parametrize("cause", ALL.values(), ids=str)
def test_each_cause_says_what_its_callers_read(cause: Cause) -> None:
    assert cause.patterns(PYTHON)
    assert cause.patterns(COMMAND)
    assert {STATUS, EVENTS, METRICS, REPORT, JOBS} <= cause.words.keys()


def test_words_are_found_whatever_stands_for_what_differs() -> None:
    cause = Cause("x", "y", {PYTHON: [["a {n} b (c)", "or this"]]})
    assert cause.missing(PYTHON, ["a 7 b (c)"]) == cause.missing(PYTHON, ["no", "or this"]) == []
    assert len(cause.missing(PYTHON, ["a 7 b (c) and more"])) == 1
    assert masked("after 0.3 s;  see 12") == "after N s; see N"


def test_the_page_has_the_words_of_the_product() -> None:
    assert ALL["the handler ends the process"].missing(JOBS, [LOST]) == []
    (said,) = (line.pattern for line in ALL["its program is missing"].patterns(COMMAND))
    assert re.escape(statuses.STATUSES[statuses.START_FAILED]) in said
