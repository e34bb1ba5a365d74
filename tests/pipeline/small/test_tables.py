"""The small engine: its tables are what plain Python makes of the same events; no Java runs here.

That Spark makes the same rows is shown in tables/test_against_plain_python.py.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from osrdyne_pipeline.errors import LakeError
from osrdyne_pipeline.lake import Lake
from osrdyne_pipeline.recommendation.choices.options import DELAYS, STOP_SECONDS
from osrdyne_pipeline.schemas import TABLES
from osrdyne_pipeline.slices import build
from osrdyne_pipeline.small.engine import QUERIES, SmallEngine
from osrdyne_pipeline.small.events_and_requests import REQUESTS
from osrdyne_pipeline.small.lives import LIVES
from tests.pipeline.tables.histories import Pool, made_plainly, made_small, random_history, read_small
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


def test_events_of_an_older_version_lack_callers_and_causes_and_make_all_tables(lake: Lake) -> None:
    history = [
        event._replace(caller=None, error=None, detail=None, output=None, log=None, began=None)
        for event in random_history(6, keys=5, events_of_a_key=40)
    ]
    made = made_small(lake, history)
    # As an older version wrote them, beside a file of ours
    for file in lake.path("bronze").resolve().glob("**/*.parquet"):
        table = pq.read_table(file, partitioning=None)
        older = table.drop_columns(["caller", "error", "detail", "output", "log", "began"])
        pq.write_table(older.slice(0, len(older) // 2), file)
        pq.write_table(table.slice(len(older) // 2), file.with_name(f"more-{file.name}"))
    with SmallEngine.open("1g") as engine:
        build(engine, lake, lambda *_: None)
    assert read_small(lake) == made


LATEST = "loading\nTraceback (most recent call last):\n  ...\nFileNotFoundError: data/XX.json"


def test_causes_are_counted_by_how_a_worker_ended_and_by_the_class_of_the_error(lake: Lake) -> None:
    pool = Pool()
    tell = pool.key("XX")
    end: dict[str, Any] = {
        "outcome": "exit 1",
        "began": 0,
        "detail": "worker exited with status 1",
        "log": "/var/w.log",
    }
    tell("worker-ended", 10, output="FileNotFoundError: first", **end)
    tell("worker-ended", 20, output=LATEST, **end)
    tell("worker-ended", 30, output="a\nkilled", **end | {"began": 1, "outcome": "memory"})
    tell("worker-ended", 40, outcome="stopped", began=0, detail="stopped: idle")
    tell("worker-ended", 50, outcome="stopped", began=0, detail="stopped: stuck: nothing consumes")
    tell("start-failed", 60, outcome="no-start", began=0, detail="no such image " + "x" * 900)
    for number, error in enumerate(("KeyError", "KeyError", "a.b.GoneError", None)):
        tell("finished", 70 + number, f"r{number}", outcome="error", error=error, worker_id="w")
    tell("finished", 90, "good", outcome="ok", worker_id="w")

    small = made_small(lake, pool.history)

    found = {
        (what, how, error, began): (times, example, log)
        for _, what, how, error, began, times, _, example, log, _ in small["causes"]
    }
    assert found == {
        ("worker-ended", "exit 1", "FileNotFoundError", False): (2, LATEST.splitlines()[-1], "/var/w.log"),
        ("worker-ended", "memory", None, True): (1, "killed", "/var/w.log"),
        ("worker-ended", "stopped", None, False): (1, "stopped: idle", None),
        ("worker-ended", "stuck", None, False): (1, "stopped: stuck: nothing consumes", None),
        ("start-failed", "no-start", None, False): (1, ("no such image " + "x" * 900)[:600], None),
        ("handler-error", "error", "KeyError", None): (2, None, None),
        ("handler-error", "error", "a.b.GoneError", None): (1, None, None),
        ("handler-error", "error", None, None): (1, None, None),
    }
    # Of four failed starts, two came after a worker that had started.
    [(_, started, failed, since, *_)] = small["starts"]
    assert (started, failed, since) == (0, 4, 2)


@pytest.mark.parametrize("seed", range(4))
def test_parts_of_callers_and_idle_time_sum_to_the_worker_time_of_each_day(seed: int, lake: Lake) -> None:
    small = made_small(lake, random_history(seed, keys=12, events_of_a_key=150))
    billed: Counter[tuple[Any, Any]] = Counter()
    for key, _, requests, cold, run_ms, busy_ms, day in small["bill"]:
        assert min(requests, cold, run_ms, busy_ms) >= 0
        billed[key, day] += busy_ms
    up = {(key, day): (up_ms, busy_ms, idle_ms) for key, up_ms, busy_ms, idle_ms, _, day in small["worker_hours"]}
    assert any(busy for _, busy, _ in up.values())
    for place, (up_ms, busy_ms, idle_ms) in up.items():
        assert billed[place] == busy_ms
        assert billed[place] + idle_ms == up_ms
    for column, whole in ((2, len(small["requests"])), (3, sum(row[3] for row in small["requests"]))):
        assert sum(row[column] for row in small["bill"]) == whole


def test_callers_of_requests_at_the_same_time_share_the_busy_time_by_their_run_time(lake: Lake) -> None:
    # Given a group that is up for 100 s, in which anna's request runs for 30 s and, beside it, two of ben for 15 s each
    pool = Pool()
    tell = pool.key("LAX")
    tell("group-started", 0)
    runs = (("a", "anna", 10, 40), ("b", "ben", 20, 35), ("c", "ben", 25, 40), ("d", None, 60, 61))
    for request, caller, begin, end in runs:
        tell("request-received", 1000 * begin, request, worker_id="w", caller=caller)
        tell("finished", 1000 * end, request, worker_id="w", outcome="ok")
    tell("group-stopped", 100_000)
    # Then 31 s were busy: anna and ben share 60/61 of them in equal parts, and the rest belongs to no known caller
    small = made_small(lake, pool.history)
    assert [row[1:4] for row in small["worker_hours"]] == [(100_000, 31_000, 69_000)]
    assert {caller: (requests, busy) for _, caller, requests, _, _, busy, _ in small["bill"]} == {
        None: (1, 508),
        "anna": (1, 15_246),
        "ben": (2, 15_246),
    }


def test_the_daemon_names_the_caller_of_a_request_that_it_forwarded(lake: Lake) -> None:
    pool = Pool()
    tell = pool.key("LAX")
    for request, caller in (("named", "anna"), ("unnamed", None)):
        tell("orphan-seen", 0, request, caller=caller)
        tell("request-received", 10, request, worker_id="w", caller="core-daemon")
        tell("finished", 20, request, worker_id="w", outcome="ok")
    tell("request-received", 30, "warm", worker_id="w", caller="ben")
    found = {row[1]: row[-2] for row in made_small(lake, pool.history)["requests"]}
    assert found == {"named": "anna", "unnamed": None, "warm": "ben"}


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
        select 'key-' || number as key, happened.*, uuid()::varchar as event_id, 'w' as worker_id,
            null::varchar as caller
        from range(100000) as keys(number), (values
            ('request-received', 0, 'a', null), ('finished', 5, 'a', 'ok'),
            ('request-received', 10, 'a', null), ('request-received', 10, 'a', null),
            ('request-received', 0, null, null), ('request-received', 0, null, null)
        ) as happened(event, time_ms, request_id, outcome)
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
