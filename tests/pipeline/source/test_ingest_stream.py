"""A stream into the lake: all of it, once, from a real broker; what is lost or changed is said."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from osrdyne_pipeline import batches
from osrdyne_pipeline.errors import EventsLost, SourceError, StreamChanged
from osrdyne_pipeline.ingest import IngestProgress, IngestRules, ingest_stream
from osrdyne_pipeline.lake import Lake
from osrdyne_pipeline.small.engine import SmallEngine
from osrdyne_pipeline.source import datasource, stream
from testbed.waiting import until
from tests.pipeline.source.conftest import Events, offsets_of, rows_of


def offsets(lake: Lake) -> list[tuple[str, int]]:
    return sorted((row["source"], row["offset"]) for row in rows_of(lake, "bronze"))


def test_each_run_goes_on_where_the_last_one_stopped(engine: SmallEngine, lake: Lake, pool_events: Events) -> None:
    nothing = ingest_stream(engine, lake, uri_file=str(pool_events.uri_file))
    assert (nothing.batches, nothing.events) == (0, 0)

    pool_events.send(40)
    pool_events.publish([("k", {"x-event": "exploded"}), (b"\xff", pool_events.headers(0)), ("k", {})], b"what it was")
    shares: list[float] = []
    first = ingest_stream(
        engine,
        lake,
        uri_file=str(pool_events.uri_file),
        rules=IngestRules(batch_events=30),
        progress=lambda so_far: shares.append(so_far.done / so_far.total),
    )
    assert shares == [30 / 43, 1.0]
    assert (first.batches, first.events, first.rejects, first.done, first.total) == (2, 40, 3, 43, 43)
    assert first.reasons == {"unknown_event": 1, "invalid_key": 1, "no_event": 1}
    rejects = {row["offset"]: row for row in rows_of(lake, "rejects")}
    assert (rejects[41]["raw"], rejects[42]["raw"]) == (b"\xff", b"what it was")

    assert ingest_stream(engine, lake, uri_file=str(pool_events.uri_file)).batches == 0
    pool_events.send(5)
    assert ingest_stream(engine, lake, uri_file=str(pool_events.uri_file)).events == 5
    assert offsets(lake) == [("core-events", number) for number in (*range(40), *range(43, 48))]


def test_following_takes_in_what_comes_until_it_is_stopped(
    engine: SmallEngine, lake: Lake, pool_events: Events
) -> None:
    stop, seen = threading.Event(), [IngestProgress()]
    uri_file = str(pool_events.uri_file)

    def follow() -> None:
        seen.append(ingest_stream(engine, lake, uri_file=uri_file, follow=True, stop=stop, every=0.1))

    def has(count: int) -> bool:
        return len(offsets(lake)) == count

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        for count in (3, 7):
            pool_events.send(count - len(offsets(lake)))
            until(partial(has, count), what="the events in bronze")
    finally:
        stop.set()
        thread.join(60)
    assert seen[-1].events == 7


@pytest.mark.full
def test_a_stream_that_was_made_again_is_not_taken_for_the_old_one(
    engine: SmallEngine, lake: Lake, pool_events: Events
) -> None:
    uri_file = str(pool_events.uri_file)
    pool_events.send(10)
    ingest_stream(engine, lake, uri_file=uri_file)

    pool_events.make_again()
    pool_events.sent = 100
    pool_events.send(3)
    with pytest.raises(StreamChanged, match="ends at offset 3, and 10 were read"):
        ingest_stream(engine, lake, uri_file=uri_file)
    # As long as the old one, and longer: its offsets alone do not show it.
    pool_events.send(9)
    with pytest.raises(StreamChanged, match="another event"):
        ingest_stream(engine, lake, uri_file=uri_file)

    assert ingest_stream(engine, lake, uri_file=uri_file, rules=IngestRules(new_stream=True)).events == 12
    assert ingest_stream(engine, lake, uri_file=uri_file).events == 0
    new_stream = [("core-events#2", number) for number in range(12)]
    assert offsets(lake) == [("core-events", number) for number in range(10)] + new_stream


@pytest.mark.full
def test_what_retention_took_is_an_error_or_a_note(engine: SmallEngine, lake: Lake, pool_events: Events) -> None:
    # Given a stream that keeps little, of which something was read
    pool_events.make_again(**{"x-max-length-bytes": 80_000, "x-stream-max-segment-size-bytes": 20_000})
    uri_file = str(pool_events.uri_file)
    pool_events.send(10)
    ingest_stream(engine, lake, uri_file=uri_file)

    # When more goes by than it keeps
    def first() -> int:
        pool_events.send(200)
        held = stream.bounds(pool_events.monitor_uri, pool_events.stream)
        return held.first if held else 0

    begins = until(lambda: (found := first()) > 10 and found, what="the stream to drop its oldest")

    # I expect an error that says so, and to go on without them when I want to
    with pytest.raises(EventsLost, match=rf"10 to {begins - 1} .*on-gap record"):
        ingest_stream(engine, lake, uri_file=uri_file)
    done = ingest_stream(engine, lake, uri_file=uri_file, rules=IngestRules(on_gap="record"))
    assert done.reasons == {"gap": 1}
    (note,) = rows_of(lake, "rejects")
    assert (note["reason"], note["offset"]) == ("gap", 10)
    assert f"the events 10 to {begins - 1} of core-events" in note["raw"].decode()
    # Some offsets are the broker's own.
    left, _ = offsets_of(stream.read(pool_events.monitor_uri, pool_events.stream, 0, pool_events.end()))
    assert left[0] == begins
    assert [offset for _, offset in offsets(lake)] == [*range(10), *left]


def test_no_password_is_in_a_plan_or_the_lake(
    spark: SparkSession, engine: SmallEngine, lake: Lake, pool_events: Events
) -> None:
    pool_events.send(5)
    secret = pool_events.pool.passwords[pool_events.pool.users.monitor]
    datasource.register(spark)
    reader = spark.read.format(datasource.NAME).option("pool", "core").option("uri_file", str(pool_events.uri_file))
    rows = reader.load()
    assert rows.count() == 5
    plan = rows._jdf.queryExecution().toString() + rows._jdf.queryExecution().logical().toJSON()
    assert "osrdyne_events" in plan
    assert secret not in plan

    ingest_stream(engine, lake, uri_file=str(pool_events.uri_file))
    held = [file for file in lake.home.rglob("*") if file.is_file()]
    assert any(file.name == batches.NOTE for file in held)
    assert not [file for file in held if secret.encode() in file.read_bytes()]
    pool_events.uri_file.write_text(pool_events.monitor_uri.replace(secret, "wrong-one"))
    with pytest.raises(SourceError) as caught:
        ingest_stream(engine, lake, uri_file=str(pool_events.uri_file))
    assert "wrong-one" not in str(caught.value)


@pytest.mark.full
def test_a_streaming_query_goes_on_exactly_from_its_checkpoint(
    spark: SparkSession, pool_events: Events, tmp_path: Path
) -> None:
    datasource.register(spark)
    secret = pool_events.pool.passwords[pool_events.pool.users.monitor]
    table, checkpoint = str(tmp_path / "rows"), str(tmp_path / "checkpoint")

    def run() -> list[int]:
        reader = spark.readStream.format(datasource.NAME).option("stream", pool_events.stream)
        rows = reader.option("uri_file", str(pool_events.uri_file)).option("maxEventsPerBatch", "20").load()
        query = rows.writeStream.format("parquet").option("checkpointLocation", checkpoint).start(table)
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        return sorted(row["offset"] for row in spark.read.parquet(table).collect())

    pool_events.send(50)
    assert run() == list(range(50))
    pool_events.send(7)
    assert run() == list(range(57))
    written = [file.read_bytes() for file in (tmp_path / "checkpoint").rglob("*") if file.is_file()]
    assert any(b'{"offset": 57}' in content for content in written)
    assert not [content for content in written if secret.encode() in content]
