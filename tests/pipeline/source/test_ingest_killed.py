"""An ingest that is killed by SIGKILL while it works: the next one leaves no gap and no duplicate."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pyspark.sql import SparkSession

from osrdyne_pipeline import batches
from osrdyne_pipeline.ingest import IngestRules, ingest_stream
from osrdyne_pipeline.lake import Lake
from testbed.waiting import until
from tests.pipeline.source.conftest import Events

EVENTS = 600

SCRIPT = """
import sys
from osrdyne_pipeline.ingest import IngestRules, ingest_stream
from osrdyne_pipeline.lake import Lake
from osrdyne_pipeline.session import session
lake, uri_file = sys.argv[1:]
spark = session("killed", master="local[2]", memory="512m")
ingest_stream(spark, Lake(lake, "core"), uri_file=uri_file, rules=IngestRules(batch_events=10))
"""


@pytest.mark.full
def test_a_job_that_is_killed_leaves_no_gap_and_no_duplicate(
    spark: SparkSession, lake: Lake, pool_events: Events
) -> None:
    # Given a job that is killed within one of its many batches
    pool_events.send(EVENTS)
    arguments = [str(lake.home.parent), str(pool_events.uri_file)]
    job = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    )
    try:
        until(
            lambda: len(batches.committed(lake)) >= 2 and list((lake.home / batches.STAGING).glob("*/*/_temporary")),
            within=120,
            every=0.005,
            what="a batch under way",
        )
    finally:
        job.kill()
        job.wait(60)
    left = {batch.name: batch.events for batch in batches.committed(lake)}
    assert 20 <= sum(left.values()) < EVENTS

    # When another one is run
    done = ingest_stream(spark, lake, uri_file=str(pool_events.uri_file), rules=IngestRules(batch_events=EVENTS))

    # I expect what was done to stay, and the rest to be there once
    assert done.events == EVENTS - sum(left.values())
    assert left.items() <= {batch.name: batch.events for batch in batches.committed(lake)}.items()
    rows = lake.read(spark, "bronze").select("offset", "event_id").collect()
    assert sorted(row["offset"] for row in rows) == list(range(EVENTS))
    assert len({row["event_id"] for row in rows}) == EVENTS
