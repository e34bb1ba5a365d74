"""Spark makes tables again for the days that changed, and takes turns with DuckDB; see small/test_changed_days.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from osrdyne_pipeline import forgetting, slices, tables
from osrdyne_pipeline.forgetting import ForgetSelection
from osrdyne_pipeline.lake import Lake
from osrdyne_pipeline.small.engine import SmallEngine
from tests.pipeline.small.test_changed_days import files, made_from_nothing
from tests.pipeline.tables.histories import DAY, add, long_history, read_small

#: Dozens of Spark jobs.
pytestmark = pytest.mark.full


@pytest.mark.parametrize("seed", [1])
def test_engines_in_turns_make_of_what_comes_and_goes_what_is_made_from_nothing(
    seed: int, spark: SparkSession, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "MOST", 1)
    history = sorted(long_history(seed), key=lambda event: event.time_ms)
    third = len(history) // 3
    for number in range(3):
        share = history[number * third :][:third]
        copies = [event._replace(source="copy", time_ms=event.time_ms - DAY) for event in share[::20]]
        add(lake, f"batch-{number}", [*share, *copies])
        before = files(lake) if number else {}
        if number == 1:
            with SmallEngine.open("1g") as engine:
                tables.build(engine, lake, lambda *_: None)
        else:
            forgetting.forget(lake, ForgetSelection(event_ids=frozenset({share[0].event_id})))
            tables.build(spark, lake, lambda *_: None)

        assert read_small(lake) == made_from_nothing(lake, tmp_path / "nothing")
        assert not number or any(before[day] == after for day, after in files(lake).items() if day in before)
