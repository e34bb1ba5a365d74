"""Reports of one group keep the order of what they report, though some take longer. Under virtual time."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from osrdyne.drivers.in_turn import TasksInTurn, Turn

pytestmark = pytest.mark.looptime


class Reports:
    """Tasks in turn, and what they reported."""

    def __init__(self) -> None:
        self.tasks = TasksInTurn()
        self.reported: list[str] = []

    async def report(self, what: str, seconds: float, turn: Turn) -> None:
        await asyncio.sleep(seconds)
        await turn()
        self.reported.append(what)

    def begin(self, name: str, what: str, seconds: float) -> None:
        self.tasks.begin(name, partial(self.report, what, seconds))


async def test_a_report_that_needs_less_time_waits_for_the_one_before_of_its_name() -> None:
    reports = Reports()
    reports.begin("a", "first of a", 5.0)
    reports.begin("b", "b", 1.0)
    reports.begin("a", "second of a", 0.0)
    reports.begin("a", "third of a", 2.0)
    await reports.tasks.finish()

    assert reports.reported == ["b", "first of a", "second of a", "third of a"]
    assert asyncio.get_running_loop().time() == 5.0


async def test_a_report_that_fails_does_not_hold_up_the_next() -> None:
    reports = Reports()

    async def fail(turn: Turn) -> None:
        raise RuntimeError

    reports.tasks.begin("a", fail)
    reports.begin("a", "a", 0.0)
    await reports.tasks.finish()

    assert reports.reported == ["a"]


async def test_cancelled_reports_report_nothing() -> None:
    reports = Reports()
    reports.begin("a", "a", 5.0)
    await reports.tasks.cancel()

    assert reports.reported == []
