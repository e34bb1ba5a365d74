"""Windows of the week: how they are written, when they are open, and what the warmer makes of them."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osrdyne.lifetime.warmer import keep_warm
from osrdyne.lifetime.window_rules import Schedule
from osrdyne.state.pool import PoolState
from osrdyne.state.tracker import Status
from osrdyne_pool.settings import Delays, PoolSettings
from osrdyne_pool.windows import DAYS, Window, parse_window
from tests.unit.stand_ins import follower

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
#: 1970 began on a Thursday; this is the Monday after.
MONDAY = 4 * DAY


def schedule(**windows: tuple[str, ...]) -> Schedule:
    return Schedule({key: Delays(600, 600, texts) for key, texts in windows.items()})


def test_a_window_is_written_as_days_and_hours() -> None:
    assert parse_window("mon,tue,fri 10:00-12:30") == Window(("mon", "tue", "fri"), 600, 750)
    assert parse_window("sun 00:00-24:00") == Window(("sun",), 0, 1440)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("mon 10:00", "'mon 10:00' is not a window; give days and times in UTC, as in 'mon,tue,fri 10:00-12:30'"),
        ("mon 9:00-10:00", "is not a window"),
        ("mon 10:00-24:01", "is not a window"),
        ("mon 10:00-12:30\n", "is not a window"),
        ("Mon 10:00-12:30", "is not a window"),
        (600, "600 is not a window"),
        ({"days": ["mon"]}, "is not a window"),
        ("mon,mon 10:00-12:30", "'mon,mon' are not days, each once"),
        ("mon,xyz 10:00-12:30", "give some of mon,tue,wed,thu,fri,sat,sun"),
        (", 10:00-12:30", "are not days"),
        ("mon 10:00-10:00", "10:00 is not after 10:00; a window that spans midnight is two"),
        ("mon 22:00-02:00", "02:00 is not after 22:00"),
    ],
)
def test_what_is_not_a_window_is_refused(text: object, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        parse_window(text)


def test_a_window_is_open_from_its_first_moment_until_before_its_end() -> None:
    one = schedule(a=("mon 10:00-12:30",))

    assert one.open(MONDAY + 10 * HOUR - 1) == {}
    assert one.open(MONDAY + 10 * HOUR) == {"a": 150 * MINUTE}
    assert one.open(MONDAY + 750 * MINUTE - 1) == {"a": 1}
    assert one.open(MONDAY + 750 * MINUTE) == {}
    assert one.open(MONDAY + DAY + 11 * HOUR) == {}


def test_of_windows_that_overlap_the_later_end_counts() -> None:
    one = schedule(a=("mon 10:00-14:00", "mon 11:00-12:00"))

    assert one.open(MONDAY + 11 * HOUR) == {"a": 3 * HOUR}


def test_the_next_window_is_that_of_any_key_and_of_next_week_where_this_weeks_are_over() -> None:
    one = schedule(a=("mon 10:00-12:00",), b=("wed 06:00-07:00",))

    assert one.next(MONDAY) == 10 * HOUR
    assert one.next(MONDAY + 10 * HOUR) == 2 * DAY - 4 * HOUR
    assert one.next(MONDAY + 6 * DAY) == DAY + 10 * HOUR
    assert schedule().next(MONDAY) is None


@given(st.integers(0, 10**10), st.sampled_from(DAYS), st.integers(0, 1439), st.integers(1, 1440))
def test_windows_are_those_of_the_calendar(second: int, day: str, begin: int, length: int) -> None:
    end = min(1440, begin + length)
    one = schedule(a=(f"{day} {begin // 60:02}:{begin % 60:02}-{end // 60:02}:{end % 60:02}",))

    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=second)
    minute = moment.hour * 60 + moment.minute
    assert bool(one.open(second * 1000)) == (f"{moment:%a}".lower() == day and begin <= minute < end)


@pytest.mark.looptime
async def test_the_warmer_keeps_keys_active_from_a_windows_begin_to_its_end() -> None:
    loop = asyncio.get_running_loop()
    pool = PoolSettings("core", overrides={"42": Delays(600, 600, ("mon 10:00-12:00",))})
    state = PoolState.of(pool, loop.time)
    changes = follower(state.tracker.changes)
    # Given five minutes to ten
    start = MONDAY + 10 * HOUR - 5 * MINUTE
    warmer = asyncio.create_task(keep_warm(state, Schedule(pool.overrides), lambda: start + round(1000 * loop.time())))
    await asyncio.sleep(299)
    assert state.tracker.wanted == {}
    # When the window begins
    assert await changes.take(2.0) == ["42"]
    # Then the key is active until the window ends, and not for its delay beyond that
    assert loop.time() == pytest.approx(300, abs=0.1)
    await asyncio.sleep(3600)
    assert state.tracker.wanted["42"].status is Status.ACTIVE
    assert state.tracker.wanted["42"].until == pytest.approx(300 + 7200, abs=0.1)
    assert state.tracker.advance(7501) == ["42"]
    warmer.cancel()
    await asyncio.wait((warmer,))


async def test_the_warmer_ends_where_there_is_nothing_to_keep() -> None:
    state = PoolState.of(PoolSettings("core"), asyncio.get_running_loop().time)

    await keep_warm(state, Schedule({}), lambda: MONDAY)

    assert state.tracker.wanted == {}
