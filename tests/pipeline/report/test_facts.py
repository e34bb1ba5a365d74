"""What the report asks the tables, on small tables made by hand."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from osrdyne_pipeline.report import facts
from osrdyne_pipeline.report.advice import next_steps
from osrdyne_pipeline.report.content import ReportContent
from osrdyne_pipeline.report.numbers import DAY_MS, HOUR_MS
from osrdyne_pipeline.report.page import page
from osrdyne_pipeline.schemas import TABLES
from osrdyne_pipeline.small.engine import SmallEngine, short
from tests.pipeline.report.samples import YEAR

DAY = date(2013, 1, 1)


@pytest.fixture
def tables() -> Iterator[Callable[[dict[str, list[dict[str, Any]]]], facts.Ask]]:
    """Gives tables that hold these rows; whatever a row does not name is 0, empty or null."""
    with SmallEngine.open("1g") as engine:

        def of(rows: dict[str, list[dict[str, Any]]]) -> facts.Ask:
            for name in facts.TABLES:
                schema = TABLES[name]
                columns = [[row.get(field.name, _least(field)) for row in rows.get(name, [])] for field in schema]
                engine.connection.register(short(name), pa.table(columns, schema=schema))
            return engine.rows

        yield of


def _least(field: pa.Field) -> Any:
    least = {"int64": 0, "int32": 0, "string": "", "bool": False, "double": 0.0, "date32[day]": DAY}
    return None if field.nullable else least[str(field.type)]


def gathered(ask: facts.Ask) -> ReportContent:
    calls: list[tuple[str, int, int]] = []
    found = facts.gather("core", ask, now_ms=YEAR + 30 * DAY_MS, progress=lambda *part: calls.append(part))
    assert calls == [(name, number, 5) for number, name in enumerate(facts.PARTS, 1)]
    return found


def test_empty_tables_make_an_empty_report(tables: Callable[..., facts.Ask]) -> None:
    found = gathered(tables({}))

    assert found.span is None
    assert found.totals.requests == 0
    assert found.demand is None
    assert found.heat == []
    assert found.forecast is None
    assert "No request was seen." in page(found)


def test_totals_and_demand_are_sums_of_the_tables(tables: Callable[..., facts.Ask]) -> None:
    demand = [
        {"key": "LAX", "hour_ms": YEAR, "requests": 5, "cold": 1},
        {"key": "SFO", "hour_ms": YEAR, "requests": 2, "cold": 2},
        {"key": "LAX", "hour_ms": YEAR + 3 * HOUR_MS, "requests": 4, "cold": 0},
    ]
    requests = [{"outcome": outcome} for outcome in ("ok", "ok", "error", None)]
    cold = [{"key": "LAX", "cold": 1, "waited_ms": 900, "worst_ms": 900}, {"key": "SFO", "cold": 2, "waited_ms": 100}]
    hours = [{"key": "LAX", "up_ms": 4 * HOUR_MS, "busy_ms": HOUR_MS, "idle_ms": 3 * HOUR_MS}]

    found = gathered(
        tables(
            {
                "gold/demand": demand,
                "silver/requests": requests,
                "silver/events": [{}, {}],
                "gold/cold_starts": cold,
                "gold/worker_hours": hours,
                "gold/key_classes": [{"key": "LAX"}, {"key": "SFO"}],
            }
        )
    )

    totals = found.totals
    assert (totals.events, totals.requests, totals.failed, totals.unknown, totals.keys) == (2, 4, 1, 1, 2)
    assert (totals.cold, totals.waited_ms, totals.worst_ms) == (3, 1000, 900)
    assert (totals.up_ms, totals.busy_ms) == (4 * HOUR_MS, HOUR_MS)
    assert found.span == (YEAR, YEAR + 4 * HOUR_MS)
    assert found.demand is not None
    assert found.demand.days == 0
    assert (found.demand.first, found.demand.second) == ([3, 0, 0, 0], [4, 0, 0, 4])
    assert found.slowest[0] == ("LAX", 1, 900)


def test_longer_times_are_shown_as_the_mean_of_a_day_and_the_last_cut_off_week_of_its_days(
    tables: Callable[..., facts.Ask],
) -> None:
    days = [*range(140), 141]
    demand = [{"key": "LAX", "hour_ms": YEAR + day * DAY_MS, "requests": 14, "cold": 7} for day in days]
    demand.append({"key": "LAX", "hour_ms": YEAR + 141 * DAY_MS + 23 * HOUR_MS, "requests": 0, "cold": 0})

    found = gathered(tables({"gold/demand": demand})).demand

    assert found is not None
    assert found.days == 7
    assert len(found.labels) == 21
    assert found.first[:20] == [7] * 20
    assert found.first[20] == 3.5


def test_four_thousand_keys_make_a_page_no_larger_than_a_few_do(
    tables: Callable[..., facts.Ask],
) -> None:
    keys = [f"N{number}" for number in range(4000)]
    many = {
        "gold/demand": [
            {"key": key, "hour_ms": YEAR + HOUR_MS * (n % 24), "requests": 1} for n, key in enumerate(keys)
        ],
        "gold/key_classes": [
            {"key": key, "class": "rare", "requests": 4000 - n, "rank": n} for n, key in enumerate(keys)
        ],
        "gold/latency": [
            {"key": key, "cold": cold, "requests": 1, "start_ms": n, "run_ms": 3}
            for n, key in enumerate(keys)
            for cold in (True, False)
        ],
        "gold/failures": [{"cause": str(n), "reason": "error", "requests": 1, "keys": 1} for n in range(300)],
    }

    found = gathered(tables(many))

    assert [row.name for row in found.heat] == [*keys[: facts.HEAT_KEYS], "3,980 other keys"]
    assert sum(found.heat[-1].hours) == 3980
    assert len(found.cold_latency) == len(found.warm_latency) == 1 + facts.LATENCY_KEYS
    assert found.cold_latency[1].name == "N3999"
    assert found.more_causes == (290, 290)
    assert len(page(found)) < 200_000


def starts(key: str, started: int, failed: int, since: int, good_ms: int | None, day: int = 0) -> dict[str, Any]:
    failed_ms = YEAR + day * DAY_MS + HOUR_MS if failed else None
    counts = {"started": started, "failed": failed, "failed_since": since, "good_ms": good_ms, "failed_ms": failed_ms}
    return {"key": key, **counts, "day": date(2013, 1, 1 + day)}


def ended(key: str, times: int, *, began: bool | None = False, day: int = 0, **said: Any) -> dict[str, Any]:
    last = {"last_ms": YEAR + day * DAY_MS, "day": date(2013, 1, 1 + day)}
    given = {"what": "worker-ended", "how": "exit 1", "error": "FileNotFoundError", "began": began, "times": times}
    return {"key": key, **given, **last, **said}


def advice_of(found: ReportContent) -> list[tuple[str, str]]:
    return [(step.what, step.why) for step in next_steps(found)]


def test_a_key_whose_starts_all_fail_is_advised_by_its_cause_and_never_to_start_faster(
    tables: Callable[..., facts.Ask],
) -> None:
    # Given XX, whose workers never started and whose callers waited longest, and LAX, which starts slowly
    said: dict[str, Any] = {"example": "FileNotFoundError: data/XX.json", "log": "/var/log/XX.log"}
    found = gathered(
        tables(
            {
                "silver/requests": [{"outcome": "expired"}],
                "gold/demand": [{"key": "XX", "hour_ms": YEAR, "requests": 9, "cold": 9}],
                "gold/cold_starts": [
                    {"key": "XX", "cold": 9, "waited_ms": 900_000},
                    {"key": "LAX", "cold": 2, "waited_ms": 4000},
                ],
                "gold/causes": [ended("XX", 7, **said), ended("XX", 5, day=1, **said)],
                "gold/starts": [starts("XX", 0, 7, 7, None), starts("XX", 0, 5, 5, None, 1), starts("LAX", 2, 0, 0, 5)],
            }
        )
    )
    # Then the advice is its cause, with its number, and the slow start is that of LAX
    steps = advice_of(found)
    assert steps[0][0] == "XX: every start fails, FileNotFoundError"
    assert "12 starts in a row have failed; no worker of this key is known to have worked." in steps[0][1]
    assert "FileNotFoundError: data/XX.json" in steps[0][1]
    assert [what for what, _ in steps if "faster" in what] == ["Make starts of LAX faster, or rarer"]
    assert "ended before it had started: exit 1, FileNotFoundError (12 times)" in page(found)


@pytest.mark.parametrize(
    ("rows", "failing"),
    [
        ([starts("XX", 0, 1, 1, None)], True),
        ([starts("XX", 5, 2, 2, YEAR)], False),
        ([starts("XX", 5, 2, 2, YEAR), starts("XX", 0, 1, 1, None, 1)], True),
        ([starts("XX", 5, 9, 0, YEAR + 2 * HOUR_MS)], False),
        ([starts("XX", 0, 9, 9, None), starts("XX", 1, 2, 2, YEAR + DAY_MS, 1)], False),
        ([starts("XX", 3, 0, 0, YEAR)], False),
    ],
    ids=["the first", "two in a row", "three in a row", "before one that worked", "on the day before", "none"],
)
def test_a_key_fails_when_every_start_failed_since_a_worker_last_showed_that_it_works(
    tables: Callable[..., facts.Ask], rows: list[dict[str, Any]], failing: bool
) -> None:
    found = gathered(tables({"gold/starts": rows, "gold/causes": [ended("XX", 1)]}))
    assert (found.failing, found.key_causes[0].failing) == (failing, failing)


def test_ends_on_purpose_are_not_causes_and_other_causes_are_advice_of_their_own(
    tables: Callable[..., facts.Ask],
) -> None:
    causes = [
        *(
            ended("LAX", 500, began=True, how="stopped", error=None),
            ended("LAX", 30, began=True, how="memory", error=None),
        ),
        *(ended("SFO", 4, what="handler-error", how="error", error="KeyError", began=None), ended("SFO", 2, day=1)),
    ]
    worked = [starts("LAX", 30, 0, 0, YEAR), starts("SFO", 30, 2, 0, YEAR + 2 * DAY_MS, 1)]
    found = gathered(tables({"silver/requests": [{"outcome": "ok"}], "gold/causes": causes, "gold/starts": worked}))
    assert [what for what, _ in advice_of(found)][:3] == [
        "SFO: some starts fail, FileNotFoundError",
        "LAX: workers end by themselves, memory",
        "SFO: its handler fails, KeyError",
    ]


@pytest.mark.parametrize("days", [1, 2, 3, 5, 15, 40])
def test_the_last_whole_days_are_compared_with_as_many_before(tables: Callable[..., facts.Ask], days: int) -> None:
    # Given so many days: requests and failed starts by their number, and an unfinished day after them
    rows = [(date(2013, 1, 1) + timedelta(number), number) for number in range(days)]
    found = gathered(
        tables(
            {
                "gold/demand": [{"key": "a", "hour_ms": YEAR, "requests": n, "cold": 1, "day": day} for day, n in rows],
                "gold/worker_hours": [{"key": "a", "up_ms": 10 * n, "idle_ms": 4, "day": day} for day, n in rows],
                "silver/requests": [{"outcome": "error", "day": day} for day, _ in rows],
            }
        )
    ).comparison
    # Then the last week counts, or the second half of a shorter history
    size = min(7, (days - 1) // 2)
    if not size:
        assert found is None
        return
    assert found is not None
    now, before = range(days - 1 - size, days - 1), range(days - 1 - 2 * size, days - 1 - size)
    changes = {row.name: (int(row.before), int(row.now)) for row in found.changes}
    assert changes["requests"] == (sum(before), sum(now))
    assert changes["cold starts"] == changes["failed requests"] == (size, size)
    assert changes["worker-hours"] == (10 * sum(before), 10 * sum(now))
    assert (found.first_day, found.last_day) == (str(rows[now[0]][0]), str(rows[now[-1]][0]))


def test_the_rate_that_a_quarter_of_the_keys_exceed_is_of_whole_stretches(
    tables: Callable[..., facts.Ask],
) -> None:
    rng = random.Random(7)
    rows: list[dict[str, Any]] = [
        {"key": f"k{key}", "day": DAY + timedelta(day), "requests": n, "cold": rng.randint(0, n)}
        for key in range(23)
        for day in range(7)
        if (n := rng.choice([0, 1, 9, 400]))
    ]
    found = gathered(tables({"gold/demand": rows})).comparison
    assert found is not None
    (told,) = [row for row in found.changes if row.unit == "part"]
    # Given seven days, of which the last is left out: 3 beside 3
    for days, value in ((range(3), told.before), (range(3, 6), told.now)):
        sums: dict[str, list[int]] = {}
        for row in rows:
            if (row["day"] - DAY).days in days:
                asked = sums.setdefault(row["key"], [0, 0])
                asked[0] += row["cold"]
                asked[1] += row["requests"]
        assert value == pytest.approx(np.quantile([cold / n for cold, n in sums.values()], 0.75))


def test_the_mean_latency_of_a_key_weighs_each_day_by_its_requests(tables: Callable[..., facts.Ask]) -> None:
    rows = [
        {"key": "LAX", "cold": True, "requests": 1, "start_ms": 1000, "run_ms": 10},
        {"key": "LAX", "cold": True, "requests": 3, "start_ms": 5000, "run_ms": 30},
    ]

    whole, lax = gathered(tables({"gold/latency": rows})).cold_latency

    assert (whole.name, lax.name) == ("all keys", "LAX")
    assert (lax.requests, lax.start_ms, lax.run_ms, lax.orphan_ms) == (4, 1500, 10, 0)
