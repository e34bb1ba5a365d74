"""Messages of a stream that no consumer is given: each is stepped over and named."""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osrdyne_pipeline.ingest import ingest_stream
from osrdyne_pipeline.lake import Lake
from osrdyne_pipeline.small.engine import SmallEngine
from osrdyne_pipeline.source import stream
from osrdyne_pipeline.source.consumer import MessageNotReceived, StreamMessage
from osrdyne_pipeline.source.stream import FEW, Bounds
from testbed.hostile import amqp_1_0, frames
from testbed.hostile.chance import drawn
from testbed.hostile.sending import send_frames, send_messages
from tests.pipeline.source.conftest import FAR, UUID, Events, offsets_of, rows_of


@pytest.mark.both_versions
def test_messages_that_cannot_be_handed_out_are_stepped_over_and_become_rejects(
    engine: SmallEngine, lake: Lake, pool_events: Events
) -> None:
    # Given such messages at the begin, in the middle and at the end, alone and in a row
    pool_events.send_unreadable(UUID)
    pool_events.send(3)
    pool_events.send_unreadable(FAR, UUID)
    pool_events.send(2)
    pool_events.send_unreadable(FAR)
    bad, good = [0, 4, 5, 8], [1, 2, 3, 6, 7]

    # I expect each once, and rows that say so
    done = ingest_stream(engine, lake, uri_file=str(pool_events.uri_file))
    assert (done.total, done.events, done.reasons) == (9, len(good), {"unreadable_offset": len(bad)})
    assert sorted(row["offset"] for row in rows_of(lake, "bronze")) == good
    rejects = {row["offset"]: row["raw"].decode() for row in rows_of(lake, "rejects")}
    assert sorted(rejects) == bad
    assert rejects[4].startswith("unreadable_offset: the message at offset 4 of core-events cannot be received: ")
    assert "year 36536598" in rejects[4]
    assert "INTERNAL_ERROR" in rejects[5]

    # and the next run to go on behind them
    pool_events.send(1)
    again = ingest_stream(engine, lake, uri_file=str(pool_events.uri_file))
    assert (again.events, again.rejects) == (1, 0)


def test_nothing_that_a_worker_can_send_stops_the_ingestion(
    engine: SmallEngine, lake: Lake, pool_events: Events
) -> None:
    first = int(os.environ.get("OSRDYNE_FIRST_SEED", "1"))
    exchange, uri = pool_events.pool.names.activity_exchange, pool_events.pool.uri(pool_events.pool.users.worker)
    pool_events.send(2)
    send_frames(uri, drawn(frames.messages(exchange), first, 60))
    # An event whose headers have, beside those of an event, each type of a field, and values that Python does not have.
    event = (frames.short(b"x-event"), b"S" + frames.long(b"alive"))
    odd = [
        *(b"d" + struct.pack(">d", number) for number in (math.nan, math.inf, 1e308)),
        *(b"f" + struct.pack(">f", number) for number in (math.nan, -math.inf)),
        *(b"T" + struct.pack(">Q", time_ms) for time_ms in (0, 2**40, 2**63, 2**64 - 1)),
        *(b"D" + struct.pack(">Bi", *parts) for parts in ((255, 1), (0, -1), (200, 2**31 - 1))),
        *(b"S" + frames.long(text) for text in (b"\xff", b"\xed\xa0\x80", b"")),
        *(b"A" + frames.long(b"A" + frames.long(b"V") * number) for number in (1, 2)),
    ]
    tables = [frames.table([event, (frames.short(b"x-odd"), value)]) for value in odd]
    send_frames(uri, [frames.publish(exchange.encode(), b"k", b"\x20\0" + table, b"") for table in tables])
    send_messages(uri, [(f"/exchanges/{exchange}/k", data) for data in drawn(amqp_1_0.messages(), first, 60)])
    pool_events.send(2)
    end = pool_events.end()
    assert end > 60

    done = ingest_stream(engine, lake, uri_file=str(pool_events.uri_file))

    kept = [row["offset"] for name in ("bronze", "rejects") for row in rows_of(lake, name)]
    assert sorted(set(kept)) == list(range(end))
    assert done.total == end
    good = {row["event_id"] for row in rows_of(lake, "bronze")}
    assert {f"id-{number}" for number in range(4)} <= good


class Model:
    """A stream of which some offsets are missing and some are bad, read as the broker lets it be read.

    The last `lost` messages before a bad one are lost with its connection, unless they were asked for alone.
    """

    def __init__(self, first: int, kinds: list[str], lost: int = 0) -> None:
        self.lost = lost
        self.messages = {first + number: kind for number, kind in enumerate(kinds) if kind != "missing"}
        #: Connections so far.
        self.count = 0

    def of(self, kind: str) -> list[int]:
        return [offset for offset, found in self.messages.items() if found == kind]

    def __call__(self, uri: str, name: str, start: int | str, **more: int) -> Model:
        self.count += 1
        begin = {"first": 0, "last": max(self.messages, default=0) - 2}.get(str(start), start)
        end = more.get("end", 1 << 40)
        self.due = [offset for offset in self.messages if int(begin) <= offset < end]
        bad = next((at for at, offset in enumerate(self.due) if self.messages[offset] == "bad"), None)
        if bad is not None and more.get("prefetch") != 1:
            del self.due[max(0, bad - self.lost) : bad]
        return self

    def batches(self, size: int) -> Iterator[list[StreamMessage]]:
        for offset in list(self.due):
            if self.messages[offset] == "bad":
                raise MessageNotReceived("it is bad")
            yield [StreamMessage(offset, "k", {}, None, b"")]


@given(
    st.integers(0, 3000), st.lists(st.sampled_from(["good", "good", "bad", "missing"]), max_size=40), st.integers(0, 3)
)
def test_every_message_is_read_or_named_whatever_is_bad_or_missing(first: int, kinds: list[str], lost: int) -> None:
    model = Model(first, ["good", *kinds], lost)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "StreamConsumer", model)
        last = max(model.messages)
        assert stream.bounds("", "") == Bounds(first, last + 1)
        model.count = 0
        good, named = offsets_of(stream.read("", "", first, last + 1, size=3))
    assert good == model.of("good")
    # Where an offset is missing before one that is bad, nothing says which of both it was.
    assert set(model.of("bad")) <= set(named) <= set(range(first, last + 1)) - set(good)
    assert model.count <= 3 * (1 + lost) * (len(named) + 1) + 50


@given(st.integers(0, 100_000), st.integers(1, FEW - 1), st.integers(1, 30))
def test_the_begin_of_a_stream_is_found_though_its_first_messages_are_bad(first: int, bad: int, good: int) -> None:
    model = Model(first, ["bad"] * bad + ["good"] * good)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "StreamConsumer", model)
        found = stream.bounds("", "")
        assert found is not None
        assert found.end == first + bad + good
        # The last one of them; or the begin of all streams, where it may be.
        assert found.first == (first + bad - 1 if first + bad >= FEW else 0)
        # A reader that planned before retention took more goes on there, too.
        assert offsets_of(stream.read("", "", 0, found.end))[0] == model.of("good")
    assert model.count < 1500
