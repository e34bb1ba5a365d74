"""The bill: parts of callers and idle time are the whole, for every history and choice of days."""

from __future__ import annotations

import csv
import io
import json
from datetime import timedelta
from typing import Any

import pytest
from typer.testing import CliRunner

from osrdyne_pipeline.commands import PIPELINE
from osrdyne_pipeline.lake import Lake
from tests.pipeline.tables.histories import Pool, made_small, random_history, the_day


def bill(lake: Lake, *words: str) -> str:
    done = CliRunner().invoke(
        PIPELINE, ["bill", "--pool", "core", "--lake", str(lake.home.parent), *words], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("seed", range(3))
def test_callers_and_idle_time_sum_to_the_total_whatever_the_days(seed: int, lake: Lake) -> None:
    small = made_small(lake, random_history(seed, keys=6, events_of_a_key=120))
    days = sorted({row[-1] for row in small["worker_hours"]})
    choices: list[tuple[Any, Any]] = [
        (None, None),
        (days[0], days[0] + timedelta(1)),
        (days[1], None),
        (None, days[-1]),
    ]
    for since, until in choices:
        words = [word for name, day in (("--since", since), ("--until", until)) if day for word in (name, str(day))]
        said = json.loads(bill(lake, "--json", "--price", "0.5", "--worker-memory", "512m", *words))
        up_ms = sum(
            row[1]
            for row in small["worker_hours"]
            if (since is None or row[-1] >= since) and (until is None or row[-1] < until)
        )
        total = said["total"]
        assert total["worker_seconds"] == up_ms / 1000
        for name in ("callers", "keys", "shares"):
            for measure in ("worker_seconds", "price", "memory_gib_hours", "requests", "cold_starts"):
                assert sum(part[measure] for part in said[name]) == pytest.approx(total[measure], rel=1e-9), name
        assert total["price"] == pytest.approx(up_ms / 3_600_000 * 0.5)
        assert total["memory_gib_hours"] == pytest.approx(up_ms / 3_600_000 / 2)


@pytest.fixture
def week(lake: Lake) -> Lake:
    """Two keys: LAX is up for 2 h and busy for 1 h, by anna and someone unknown; SFO is up for an hour and unused."""
    hour = 3_600_000
    pool = Pool()
    tell = pool.key("LAX")
    tell("group-started", 0)
    for request, caller, begin, end in (("a", "anna", 0, 45), ("b", None, 60, 75)):
        tell("request-received", begin * 60_000, request, worker_id="w", caller=caller)
        tell("finished", end * 60_000, request, worker_id="w", outcome="ok")
    tell("group-stopped", 2 * hour)
    tell = pool.key("SFO")
    tell("group-started", 0)
    tell("group-stopped", hour)
    made_small(lake, pool.history)
    return lake


def test_the_table_names_callers_idle_time_and_keys_with_their_price(week: Lake) -> None:
    assert bill(week, "--price", "2") == (
        "caller     requests  cold starts  worker-hours  price\n"
        "(idle)            0            0         2.000   4.00\n"
        "anna              1            0         0.750   1.50\n"
        "(unknown)         1            0         0.250   0.50\n"
        "total             2            0         3.000   6.00\n"
        "\n"
        "key    requests  cold starts  worker-hours  price\n"
        "LAX           2            0         2.000   4.00\n"
        "SFO           0            0         1.000   2.00\n"
        "total         2            0         3.000   6.00\n"
    )


def test_csv_has_a_line_for_each_key_and_caller_and_what_is_not_known_is_empty(week: Lake) -> None:
    rows = list(csv.DictReader(io.StringIO(bill(week, "--csv"))))
    assert {(row["key"], row["kind"], row["caller"], row["worker_seconds"], row["price"]) for row in rows} == {
        ("LAX", "caller", "anna", "2700.0", ""),
        ("LAX", "caller", "", "900.0", ""),
        ("LAX", "idle", "", "3600.0", ""),
        ("SFO", "idle", "", "3600.0", ""),
    }


def test_days_without_anything_are_a_bill_of_nothing(week: Lake) -> None:
    said = json.loads(bill(week, "--json", "--since", str(the_day(1))))
    assert (said["total"]["worker_seconds"], said["callers"], said["total"]["price"]) == (0, [], None)


def test_what_others_named_is_not_a_formula_in_csv(lake: Lake) -> None:
    pool = Pool()
    for key in ("=1+1", "+1", "-1", "@sum", "\t=1", "LAX=1"):
        tell = pool.key(key)
        tell("request-received", 0, "a", worker_id="w", caller="=2+2")
        tell("finished", 1000, "a", worker_id="w", outcome="ok")
    made_small(lake, pool.history)
    rows = list(csv.DictReader(io.StringIO(bill(lake, "--csv"))))
    assert {row["key"] for row in rows} == {"'=1+1", "'+1", "'-1", "'@sum", "'\t=1", "LAX=1"}
    assert {row["caller"] for row in rows} == {"'=2+2"}
    # And JSON has them as they are
    assert {share["key"] for share in json.loads(bill(lake, "--json"))["shares"]} >= {"=1+1", "\t=1"}


@pytest.mark.parametrize(
    "words",
    [
        ["--since", "yesterday"],
        ["--json", "--csv"],
        ["--since", str(the_day(1)), "--until", str(the_day(1))],
        ["--worker-memory", ""],
        ["--price", "inf"],
    ],
    ids=" ".join,
)
def test_options_without_a_meaning_are_refused_in_words(words: list[str], week: Lake) -> None:
    done = CliRunner().invoke(PIPELINE, ["bill", "--pool", "core", "--lake", str(week.home.parent), *words])
    assert isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code != 0
