"""A worker writes generated messages to the stream of events: `ingest` goes on, and has a row for each of them.

What it sends is generated from a seed, which is in the name of the test.
"""

from __future__ import annotations

from urllib.parse import quote

import pytest

from osrdyne_pipeline.ingest import ingest_stream
from osrdyne_pipeline.lake import Lake
from osrdyne_pipeline.small.engine import SmallEngine
from testbed.hostile import amqp_1_0, frames
from testbed.hostile.chance import NAMES, drawn
from testbed.hostile.sending import send_frames, send_messages
from tests.pipeline.source.conftest import Events, rows_of
from tests.simulation.many_seeds import first_seed

# A second for each event that the broker cannot hand out. In `make test` the tier `security` reads such a stream.
pytestmark = [pytest.mark.full, pytest.mark.both_versions, pytest.mark.parametrize("seed", [first_seed()])]


#: Messages of AMQP 1.0, and of AMQP 0-9-1.
COUNT = 100


def test_ingest_takes_in_whatever_a_worker_writes_and_all_true_events(
    engine: SmallEngine, lake: Lake, pool_events: Events, seed: int
) -> None:
    pool, count = pool_events.pool, COUNT
    exchange, worker = pool.names.activity_exchange, pool.uri(pool.users.worker)
    keys = drawn(NAMES, seed, count)
    sent = drawn(amqp_1_0.everything([f"/queues/{pool_events.stream}"]), seed, count)
    addressed = [(f"/exchanges/{exchange}/{quote(key, safe='')}", data) for key, data in zip(keys, sent, strict=False)]
    raw = drawn(frames.messages(exchange), seed, count)

    pool_events.send(3)
    assert send_messages(worker, sorted(addressed)) > count // 4
    send_frames(worker, raw)
    end = pool_events.end()
    pool_events.send(3)

    done = ingest_stream(engine, lake, uri_file=str(pool_events.uri_file))
    assert (done.total, done.done) == (end + 3, end + 3)
    assert done.reasons.keys() >= {"no_event", "unreadable_offset"}
    good = {row["offset"] for row in rows_of(lake, "bronze")}
    rejects = {row["offset"] for row in rows_of(lake, "rejects")}
    assert {0, 1, 2, end, end + 1, end + 2} <= good
    assert good | rejects == set(range(end + 3))
    # And the next run goes on behind them.
    pool_events.send(1)
    again = ingest_stream(engine, lake, uri_file=str(pool_events.uri_file))
    assert (again.events, again.rejects) == (1, 0)
