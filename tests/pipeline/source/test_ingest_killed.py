"""An ingest that is killed by SIGKILL while it works: the next one leaves no gap and no duplicate."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from osrdyne_pipeline import batches
from osrdyne_pipeline.ingest import IngestRules, ingest_stream
from osrdyne_pipeline.lake import Lake
from osrdyne_pipeline.small.engine import SmallEngine
from testbed.waiting import until
from tests.pipeline.source.conftest import Events, rows_of

EVENTS = 600

SCRIPT = """
import sys
from osrdyne_pipeline.ingest import IngestRules, ingest_stream
from osrdyne_pipeline.lake import Lake
from osrdyne_pipeline.small.engine import SmallEngine
lake, uri_file = sys.argv[1:]
with SmallEngine.open("1g") as engine:
    ingest_stream(engine, Lake(lake, "core"), uri_file=uri_file, rules=IngestRules(batch_events=10))
"""


def test_a_job_that_is_killed_leaves_no_gap_and_no_duplicate(
    engine: SmallEngine, lake: Lake, pool_events: Events, tmp_path: Path
) -> None:
    # Given a job that is killed within one of its many batches
    pool_events.send(EVENTS)
    arguments = [str(lake.home.parent), str(pool_events.uri_file)]
    job = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *arguments],
        env={**os.environ, "TMPDIR": str(tmp_path)},  # what a killed DuckDB leaves
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    )
    try:
        until(
            lambda: len(batches.committed(lake)) >= 2 and list((lake.home / batches.STAGING).glob("*")),
            within=60,
            every=0.001,
            what="a batch under way",
        )
    finally:
        job.kill()
        job.wait(60)
    left = {batch.name: batch.events for batch in batches.committed(lake)}
    assert 20 <= sum(left.values()) < EVENTS

    # When another one is run
    done = ingest_stream(engine, lake, uri_file=str(pool_events.uri_file), rules=IngestRules(batch_events=EVENTS))

    # I expect what was done to stay, and the rest to be there once
    assert done.events == EVENTS - sum(left.values())
    assert left.items() <= {batch.name: batch.events for batch in batches.committed(lake)}.items()
    rows = rows_of(lake, "bronze")
    assert sorted(row["offset"] for row in rows) == list(range(EVENTS))
    assert len({row["event_id"] for row in rows}) == EVENTS
