"""Tables are made again for the days that changed, and are those that are made from nothing.

That Spark does the same is shown in tables/test_changed_days.py.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.sides.pipeline_plain import Event
from osrdyne_pipeline import forgetting, slices
from osrdyne_pipeline.forgetting import ForgetSelection
from osrdyne_pipeline.lake import Lake
from osrdyne_pipeline.slices import build
from osrdyne_pipeline.small import engine as small
from osrdyne_pipeline.small.engine import SmallEngine
from tests.pipeline.tables.histories import DAY, HOUR, MONDAY, Pool, add, long_history, read_small, the_day

Read = dict[str, list[tuple[Any, ...]]]


def make(lake: Lake) -> Read:
    """Make the tables, as a run does, and read them."""
    with SmallEngine.open("1g") as engine:
        build(engine, lake, lambda *_: None)
    return read_small(lake)


def made_from_nothing(lake: Lake, place: Path) -> Read:
    """Make the tables of a lake's events in another one."""
    shutil.copytree(lake.path("bronze").resolve(), place / lake.pool / "bronze")
    made = make(Lake(place, lake.pool))
    shutil.rmtree(place)
    return made


def files(lake: Lake, name: str = "silver/requests") -> dict[str, set[int]]:
    """The files of each day of a table, by what stays the same where a file gets another name."""
    found: dict[str, set[int]] = {}
    for file in lake.path(name).resolve().rglob("*.parquet"):
        found.setdefault(file.parent.name, set()).add(file.stat().st_ino)
    return found


def calls(days: Sequence[int]) -> list[Event]:
    """A request at noon of each day, of a group of its own."""
    pool = Pool()
    tell = pool.key("LAX")
    for day in days:
        noon = day * DAY + 12 * HOUR
        tell("group-started", noon)
        tell("request-received", noon + 10, f"r{day}", worker_id="w")
        tell("finished", noon + 20, f"r{day}", worker_id="w", outcome="ok")
        tell("group-stopped", noon + 30)
    return pool.history


@pytest.mark.full
@pytest.mark.parametrize("seed", range(8))
def test_whatever_comes_and_goes_tables_are_those_that_are_made_from_nothing(
    seed: int, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "MOST", 1)
    chance = random.Random(seed)
    history = long_history(seed)
    chance.shuffle(history) if seed % 3 == 0 else history.sort(key=lambda event: event.time_ms)
    known: list[Event] = []
    for number in range(5):
        share, history = history[: len(history) // (5 - number)], history[len(history) // (5 - number) :]
        # Late events, and copies of which some say something else
        late = history[-chance.randrange(1, 4) :] if number % 2 else []
        copies = [
            event._replace(source="copies", time_ms=event.time_ms + chance.choice((0, 0, DAY, -DAY)))
            for event in chance.sample(share, chance.randrange(len(share[:4]) + 1))
        ]
        add(lake, f"batch-{number}", [*share, *late, *copies])
        if chance.random() < 0.5:
            known += share
            gone = frozenset(event.event_id for event in chance.sample(known, len(known[:3])))
            forgetting.forget(lake, chance.choice((ForgetSelection(event_ids=gone), COPIES)))

        assert make(lake) == made_from_nothing(lake, tmp_path / "nothing")


COPIES = ForgetSelection(sources=frozenset({"copies"}))


def test_days_that_did_not_change_keep_their_files_and_the_changed_one_has_others(lake: Lake) -> None:
    # Given tables of eight days
    add(lake, "first", calls(range(8)))
    make(lake)
    before = files(lake)
    # When the last but one has one request more
    late = calls([6])[1:3]
    add(lake, "late", [event._replace(request_id="late", event_id=f"late-{event.event}") for event in late])
    made = make(lake)
    # Then its files alone are others
    after = files(lake)
    assert len(made["requests"]) == 9
    assert {day for day in after if after[day] != before[day]} == {f"day={the_day(6)}"}


@pytest.mark.parametrize("started", [500, -500], ids=["started after", "started before"])
def test_a_request_and_a_group_over_midnight_are_made_again_with_the_day_before(
    started: int, lake: Lake, tmp_path: Path
) -> None:
    # Given tables of a week, after which a cold request waits for its group when the day ends
    pool = Pool()
    tell = pool.key("SFO")
    tell("orphan-seen", 8 * DAY - 2000, "over")
    tell("forwarded", 8 * DAY - 1500, "over")
    tell("group-started", 8 * DAY - 1000)
    if started < 0:
        tell("started", 8 * DAY + started, worker_id="w")
    evening = len(pool.history)
    week = [event._replace(event_id=f"week-{event.event_id}") for event in calls(range(7))]
    add(lake, "evening", [*week, *pool.history])
    make(lake)
    # When the events of the next day come
    if started > 0:
        tell("started", 8 * DAY + started, worker_id="w")
    tell("request-received", 8 * DAY + 1000, "over", worker_id="w")
    tell("finished", 8 * DAY + 3000, "over", worker_id="w", outcome="ok")
    tell("group-stopped", 8 * DAY + 4000)
    add(lake, "morning", pool.history[evening:])
    made = make(lake)
    # Then the request is one of the day before, and the group's time is in both days
    [over] = [row for row in made["requests"] if row[1] == "over"]
    assert (over[3], over[6], over[-1]) == (True, MONDAY + 8 * DAY + 3000, the_day(7))
    # It waited for its group, and then in the queue
    assert over[8:10] == (1500 + started, 1000 - started)
    hours = {row[-1]: row[1:4] for row in made["worker_hours"] if row[0] == "SFO"}
    assert hours == {the_day(7): (1000, 0, 1000), the_day(8): (4000, 2000, 2000)}
    assert made == made_from_nothing(lake, tmp_path / "nothing")


def test_without_the_start_that_ended_a_life_that_life_goes_on(lake: Lake, tmp_path: Path) -> None:
    pool = Pool()
    tell = pool.key("SFO")
    tell("group-started", DAY)
    tell("group-started", 6 * DAY)
    add(lake, "first", [*pool.history, *(event._replace(event_id=f"x-{event.event_id}") for event in calls(range(8)))])
    assert [row[1] for row in make(lake)["lives"] if row[0] == "SFO"] == [MONDAY + DAY, MONDAY + 6 * DAY]
    forgetting.forget(lake, ForgetSelection(event_ids=frozenset({pool.history[1].event_id})))
    made = make(lake)
    assert [row[1] for row in made["lives"] if row[0] == "SFO"] == [MONDAY + DAY]
    assert made == made_from_nothing(lake, tmp_path / "nothing")


def test_what_a_removed_file_held_is_not_in_the_tables_any_more(lake: Lake, tmp_path: Path) -> None:
    add(lake, "first", calls(range(8)))
    again = [event._replace(event_id=f"again-{event.event_id}", request_id="again") for event in calls([6])]
    add(lake, "second", again)
    before = make(lake)["requests"]
    shutil.rmtree(lake.path("bronze") / "batch=second")
    assert make(lake) == made_from_nothing(lake, tmp_path / "nothing")
    assert len(read_small(lake)["requests"]) == len(before) - 1


#: Contents of a note that no run writes.
STRANGE_NOTES = ["{", "[]", "\ud800"]


@pytest.mark.parametrize(
    "what",
    ["code", "a table that another wrote", "a run that was cut short", "a damaged table", *STRANGE_NOTES],
)
def test_tables_that_are_not_known_to_fit_are_made_from_nothing(
    what: str, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(lake, "first", calls(range(8)))
    made = make(lake)
    before = files(lake)
    if what == "code":
        note = lake.home / slices.NOTE
        note.write_text(note.read_text().replace('"code": "', '"code": "0'))
    elif what == "a table that another wrote":
        with lake.version("silver/events"):
            pass
    elif what == "a damaged table":
        for file in lake.path("silver/requests").resolve().rglob("*.parquet"):
            file.write_bytes(b"damaged")
    elif what in STRANGE_NOTES:
        (lake.home / slices.NOTE).write_text(what, errors="surrogatepass")
    else:
        add(lake, "late", [calls([6])[0]._replace(event_id="late")])
        with monkeypatch.context() as patched:
            patched.setitem(small.QUERIES, "silver/lives", "select error('cut short') from events")
            with pytest.raises(Exception, match="cut short"):
                make(lake)
        # Then what it has written is not taken for whole
        forgetting.forget(lake, ForgetSelection(event_ids=frozenset({"late"})))

    assert make(lake) == made
    assert not any(before[day] & after for day, after in files(lake).items())


def test_nothing_is_made_where_nothing_changed_and_all_where_most_days_did(lake: Lake) -> None:
    said: list[str] = []

    def run() -> list[str]:
        said.clear()
        with SmallEngine.open("1g") as engine:
            build(engine, lake, lambda name, *_: said.append(name))
        return list(said)

    add(lake, "first", calls(range(8)))
    run()
    before = files(lake)
    assert run() == []
    add(lake, "early", [calls([1])[0]._replace(event_id="early")])
    assert run() == list(small.QUERIES)
    assert not any(before[day] & after for day, after in files(lake).items())
