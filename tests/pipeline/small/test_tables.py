"""The small engine: its tables are what plain Python makes of the same events; no Java runs here.

That Spark makes the same rows is shown in tables/test_against_plain_python.py.
"""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from osrdyne_pipeline.errors import LakeError
from osrdyne_pipeline.lake import Lake
from osrdyne_pipeline.recommendation.choices.options import DELAYS, STOP_SECONDS
from osrdyne_pipeline.schemas import TABLES
from osrdyne_pipeline.small.engine import QUERIES, SmallEngine
from osrdyne_pipeline.small.events_and_requests import REQUESTS
from osrdyne_pipeline.small.lives import LIVES
from tests.pipeline.tables.histories import Pool, made_plainly, made_small, random_history
from tests.pipeline.tables.test_by_hand import STORIES

HOURS = "gold/worker_hours"


def stories() -> Pool:
    pool = Pool()
    for story in STORIES:
        story(pool)
    return pool


@pytest.mark.parametrize(
    "shape", [(1, 150, 40), (2, 3, 400), (3, 400, 3), (4, 1, 1)], ids=["many", "busy keys", "rare keys", "one event"]
)
def test_every_table_of_a_random_history_is_what_plain_python_makes(shape: tuple[int, int, int], lake: Lake) -> None:
    seed, keys, events_of_a_key = shape
    history = random_history(seed, keys=keys, events_of_a_key=events_of_a_key)

    small, plain = made_small(lake, history), made_plainly(history)

    for name, rows in plain.items():
        if name == "forecast":
            assert [row[:3] for row in small[name]] == [row[:3] for row in rows]
            assert [value for row in small[name] for value in row[3:]] == pytest.approx(
                [value for row in rows for value in row[3:]]
            )
        else:
            assert small[name] == rows, name


def test_a_cause_of_failures_has_the_same_shape_as_in_plain_python(lake: Lake) -> None:
    pool = Pool()
    texts = (
        *("deadbeef", "deadbeef1", "DEADBEEF12", "x-0123abcd-y", "x_0123abcd_y", "g12345678", "12345678g", "1234567"),
        *("é0123456789é", "空港12345678", "a\n0123abcd\n7", "0123abcd0123abcd/7/beefbeef9", "1" * 90, " ", "'\"%_"),
    )
    for number, text in enumerate(texts):
        tell = pool.key(text)
        tell("request-received", number, text, worker_id="w")
        tell("finished", number + 5, text, worker_id="w", outcome=f"error {text}")

    assert made_small(lake, pool.history)["failures"] == made_plainly(pool.history)["failures"]


def test_copies_and_the_order_of_reading_change_no_table(lake: Lake) -> None:
    history = stories().history
    first = made_small(lake, history)

    assert made_small(lake, [*reversed(history), *(event._replace(source="zzz") for event in history[::3])]) == first
    assert all(first.values())


def test_of_equal_events_in_a_millisecond_the_same_begins_for_every_part_of_a_query() -> None:
    # Given many keys with a request that is handed out twice at once after its end, and two without an identity at once
    history = """
        select 'key-' || number as key, told.*, uuid()::varchar as event_id, 'w' as worker_id
        from range(100000) as keys(number), (values
            ('request-received', 0, 'a', null), ('finished', 5, 'a', 'ok'),
            ('request-received', 10, 'a', null), ('request-received', 10, 'a', null),
            ('request-received', 0, null, null), ('request-received', 0, null, null)
        ) as told(event, time_ms, request_id, outcome)
    """
    with SmallEngine.open("1g") as engine:
        # More threads than cores: that is when DuckDB sorts what is equal otherwise each time.
        engine.connection.execute("set threads = 4")
        # When requests and lives are made of them
        for name, query in (("events", history), ("requests", REQUESTS), ("lives", LIVES)):
            engine.connection.execute(f"create temp table {name} as {query}")
        requests = engine.rows("select number, deliveries, count(*) as n from requests group by all order by all")
        lives = engine.rows("select requests, count(*) as n from lives group by all order by all")
    # Then every key has the same of them
    assert requests == [
        {"number": 1, "deliveries": 1, "n": 300_000},
        {"number": 2, "deliveries": 2, "n": 100_000},
    ]
    assert lives == [{"requests": 4, "n": 100_000}]


def test_no_events_are_every_table_without_rows(lake: Lake) -> None:
    assert made_small(lake, []) == {name.rpartition("/")[2]: [] for name in QUERIES}
    assert all(lake.exists(name) for name in QUERIES)


def test_each_candidate_delay_is_counted_as_a_replay_of_it(lake: Lake) -> None:
    small = made_small(lake, random_history(5, keys=4, events_of_a_key=60))
    asked: dict[str, list[tuple[int, int]]] = {}
    for key, _, _, _, seen, received, done, *_ in sorted(
        small["requests"], key=lambda row: (row[0], row[4], row[1], row[2])
    ):
        ends = next(moment for moment in (done, received, seen) if moment is not None)
        asked.setdefault(key, []).append((seen, max(seen, ends)))
    last = max(end for calls in asked.values() for _, end in calls)

    assert len(small["keep_alive"]) == len(asked) * len(DELAYS)
    for key, _, delay, requests, cold, up, idle in small["keep_alive"]:
        assert (requests, cold, up, idle) == (len(asked[key]), *replayed(asked[key], delay, last))


def test_a_call_that_comes_when_the_delay_ends_is_cold(lake: Lake) -> None:
    # Given calls of 60 s each, 585 s, 586 s and 3,000 s after the end of the one before
    pool = Pool()
    tell = pool.key("a")
    for number, second in enumerate((0, 645, 1291, 4351)):
        tell("request-received", second * 1000, f"r{number}", worker_id="w")
        tell("finished", (second + 60) * 1000, f"r{number}", worker_id="w", outcome="ok")
    # When groups are kept for 10 minutes, unbound for the last 15 s of them, or for an hour
    found = {row[2]: row[3:] for row in made_small(lake, pool.history)["keep_alive"]}
    # Then 585 s are just too long for a bound queue, not for the group
    assert found[600_000] == (4, 4, 2_011_000, 1_771_000)
    assert found[3_600_000] == (4, 1, 4_411_000, 4_171_000)


def replayed(calls: list[tuple[int, int]], delay: int, last: int) -> tuple[int, int, int]:
    """Cold starts, time up and idle time of one key, call by call."""
    cold = busy = idle = 0
    active: int | None = None
    for begin, end in calls:
        cold += active is None or begin - active >= delay - int(STOP_SECONDS * 1000)
        idle += 0 if active is None else min(max(begin - active, 0), delay)
        busy += max(0, end - max(begin, begin if active is None else active))
        active = end if active is None else max(active, end)
    idle += min(last - (active or last), delay)
    return cold, busy + idle, idle


def test_rows_that_do_not_fit_their_table_leave_the_table_as_it_was(lake: Lake) -> None:
    day = dt.date(2026, 1, 1)

    def write(schema: pa.Schema, *row: object) -> None:
        with SmallEngine.open("1g") as engine, lake.version(HOURS) as aside:
            engine.connection.register("given", pa.table([[value] for value in row], schema=schema))
            engine.copy(HOURS, "from given", aside)

    loose = pa.schema([pa.field(field.name, field.type) for field in TABLES[HOURS]])
    write(loose, "a", 10, 2, 8, 1, day)
    before = lake.path(HOURS).resolve()

    with pytest.raises(LakeError, match="a row without up_ms, which is required"):
        write(loose, "a", None, 2, 8, 1, day)
    with pytest.raises(LakeError, match="do not fit the table gold/worker_hours"):
        write(loose.set(1, pa.field("up_ms", pa.string())), "a", "10", 2, 8, 1, day)

    assert lake.path(HOURS).resolve() == before


def test_too_little_memory_is_an_error_that_says_what_to_give() -> None:
    def run_out() -> None:
        with SmallEngine.open("16m") as engine:
            engine.connection.execute("set temp_directory = ''")
            engine.rows("select list(range) from range(100000000)")

    with pytest.raises(LakeError, match="--memory"):
        run_out()
