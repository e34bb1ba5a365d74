"""Events into the lake: read, judged and written aside, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from osrdyne_pipeline import batches
from osrdyne_pipeline.batches import Batch
from osrdyne_pipeline.judging import judging
from osrdyne_pipeline.lake import Lake
from osrdyne_pipeline.schemas import BRONZE, RAW, REJECTS
from osrdyne_pipeline.small.engine import SmallEngine
from osrdyne_pipeline.source import reading
from osrdyne_pipeline.source.options import SourceOptions

if TYPE_CHECKING:
    from osrdyne_pipeline.store.lake import StoreLake


def write_batch(
    engine: SmallEngine, lake: Lake, batch: Batch, options: SourceOptions, latest_ms: int
) -> tuple[int, dict[str, int]]:
    """Read what the options name, judge it and write it aside, in one pass over the source.

    Return how many events it has, and how many rejects of each reason. No event is later than `latest_ms`. Raises
    `SourceError`.
    """
    aside, bad_aside = batches.place_for(lake, batch)
    with _judged(engine, options, latest_ms) as (events, reasons):
        engine.copy("bronze", _EVENTS, aside)
        if reasons:
            engine.copy("rejects", _REJECTS, bad_aside)
    return events, reasons


def append_batch(
    engine: SmallEngine, lake: StoreLake, batch: Batch, options: SourceOptions, latest_ms: int
) -> tuple[Batch, dict[str, int]]:
    """Do the same with a lake in an object store, and commit it: return the batch with its counts.

    Raises `LakeBusy`, too.
    """
    with _judged(engine, options, latest_ms) as (events, reasons):
        done = batch.counted(events, sum(reasons.values()))
        lake.append(done, lambda: engine.reader("bronze", _EVENTS), lambda: engine.reader("rejects", _REJECTS))
    return done, reasons


@contextmanager
def _judged(engine: SmallEngine, options: SourceOptions, latest_ms: int) -> Iterator[tuple[int, dict[str, int]]]:
    """Let queries know what was read, with its verdicts, as `judged`; give how many events and rejects there are."""
    judge = judging(latest_ms)
    database = engine.connection
    database.register("given", RAW.empty_table())
    database.execute(f"create or replace temp table judged as {judge}")
    for rows in reading.read(options):
        database.register("given", rows)
        database.execute(f"insert into judged {judge}")
    database.unregister("given")
    found = engine.rows("select reason, count(*) as rows from judged where reason is not null group by reason")
    events = engine.rows("select count(*) as events from judged where reason is null")[0]["events"]
    yield events, {row["reason"]: row["rows"] for row in found}
    database.execute("drop table judged")


def _columns(names: list[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


_EVENTS = f"select {_columns(BRONZE.names)} from judged where reason is null"
_REJECTS = f"select {_columns(REJECTS.names)} from judged where reason is not null"
