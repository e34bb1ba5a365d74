"""Events into the lake by the small engine: read, judged and written aside, a batch at a time."""

from __future__ import annotations

from collections.abc import Mapping

from osrdyne_pipeline import batches
from osrdyne_pipeline.batches import Batch
from osrdyne_pipeline.judging import judging
from osrdyne_pipeline.lake import Lake
from osrdyne_pipeline.schemas import BRONZE, RAW, REJECTS
from osrdyne_pipeline.small.engine import SmallEngine
from osrdyne_pipeline.source import reading
from osrdyne_pipeline.source.options import SourceOptions


def write_batch(
    engine: SmallEngine, lake: Lake, batch: Batch, options: Mapping[str, str], latest_ms: int
) -> tuple[int, dict[str, int]]:
    """Read what the options name, judge it and write it aside, in one pass over the source.

    Return how many events it has, and how many rejects of each reason. No event is later than `latest_ms`. Raises
    `SourceError`.
    """
    aside, bad_aside = batches.place_for(lake, batch)
    judge = judging(latest_ms, 0).format(raw="given")
    database = engine.connection
    database.register("given", RAW.empty_table())
    database.execute(f"create or replace temp table judged as {judge}")
    for rows in reading.read(SourceOptions.of(options)):
        database.register("given", rows)
        database.execute(f"insert into judged {judge}")
    database.unregister("given")
    engine.copy("bronze", f"select {_columns(BRONZE.names)} from judged where reason is null", aside)
    found = engine.rows("select reason, count(*) as rows from judged where reason is not null group by reason")
    if found:
        engine.copy("rejects", f"select {_columns(REJECTS.names)} from judged where reason is not null", bad_aside)
    events = engine.rows("select count(*) as events from judged where reason is null")[0]["events"]
    database.execute("drop table judged")
    return events, {row["reason"]: row["rows"] for row in found}


def _columns(names: list[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
