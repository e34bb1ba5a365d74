"""The bare reader of a stream, on real brokers of both versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from osrdyne_pipeline.errors import SourceError
from osrdyne_pipeline.source import consumer, stream
from osrdyne_pipeline.source.consumer import StreamMessage
from osrdyne_pipeline.source.stream import Bounds
from testbed.authority import Authority
from testbed.handshakes import listening
from tests.pipeline.source.conftest import Events, offsets_of

pytestmark = pytest.mark.both_versions


def offsets(events: Events, start: int, end: int, *, size: int = 1000) -> list[int]:
    return offsets_of(stream.read(events.monitor_uri, events.stream, start, end, size=size))[0]


def test_a_stream_is_read_exactly_from_and_to_any_offset(pool_events: Events) -> None:
    assert stream.bounds(pool_events.monitor_uri, pool_events.stream) is None
    assert offsets(pool_events, 0, 10) == []

    pool_events.send(1000)
    # More than are on their way at once: acknowledging them goes on within and after a question.
    pool_events.send(consumer.PREFETCH + 500)
    end = 1500 + consumer.PREFETCH

    assert stream.bounds(pool_events.monitor_uri, pool_events.stream) == Bounds(0, end)
    for start, stop in ((0, end), (0, 1), (1, 2), (999, 1001), (1234, end), (end - 1, end), (end - 5, end + 100)):
        assert offsets(pool_events, start, stop) == list(range(start, min(stop, end))), (start, stop)
    assert offsets(pool_events, 10, end, size=100) == list(range(10, end))
    assert offsets(pool_events, end, end + 5) == []
    found = stream.message_at(pool_events.monitor_uri, pool_events.stream, 1001)
    assert isinstance(found, StreamMessage)
    assert (found.offset, found.routing_key, found.headers["x-event-id"]) == (1001, "k1", "id-1001")
    assert stream.message_at(pool_events.monitor_uri, pool_events.stream, end) is None


def test_what_is_wrong_with_broker_or_stream_is_said_without_the_password(pool_events: Events) -> None:
    good = pool_events.monitor_uri
    secret = pool_events.pool.passwords[pool_events.pool.users.monitor]
    for uri, name, says in (
        (good, "other-events", "refuses|ACCESS_REFUSED"),
        (good.replace(secret, "wrong-one"), "core-events", "ACCESS_REFUSED"),
        (f"amqp://someone:{secret}@127.0.0.1:1/%2F", "core-events", "no connection.*refused"),
        (f"amqp://someone:{secret}@127.0.0.1:99999/", "core-events", "has a port that is not"),
    ):
        with pytest.raises(SourceError, match=says) as caught:
            stream.bounds(uri, name)
        assert secret not in str(caught.value)
        assert "wrong-one" not in str(caught.value)


def test_a_broker_whose_certificate_is_refused_is_said_with_what_to_do(tmp_path: Path) -> None:
    certificate = Authority(tmp_path).issue("server", addresses=["127.0.0.1"])
    expected = "name the file of a private CA by ca_certs in ssl_options"
    with listening(certificate) as port, pytest.raises(SourceError, match=expected) as caught:
        stream.bounds(f"amqps://someone:hunter2@127.0.0.1:{port}/%2F", "core-events")

    assert "hunter2" not in str(caught.value)


def test_a_first_delivery_behind_the_broker_s_answer_is_not_taken_for_the_end(
    pool_events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool_events.send(20)
    consume = consumer.StreamConsumer._consume

    def answered_before(self: consumer.StreamConsumer, frame: object) -> None:
        self._question(frame)
        self._connection.ioloop.call_later(0.2, lambda: consume(self, frame))

    monkeypatch.setattr(consumer.StreamConsumer, "_consume", answered_before)
    found = stream.message_at(pool_events.monitor_uri, pool_events.stream, 15)
    assert found is not None
    assert found.offset == 15
    assert stream.message_at(pool_events.monitor_uri, pool_events.stream, 20) is None


def test_a_range_that_seems_to_end_early_is_read_to_its_end(
    pool_events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool_events.send(20)
    consume, early = consumer.StreamConsumer._consume, [True]

    def ends_early(self: consumer.StreamConsumer, frame: object) -> None:
        if early:
            early.pop()
            self._finish()
        else:
            consume(self, frame)

    monkeypatch.setattr(consumer.StreamConsumer, "_consume", ends_early)
    assert offsets(pool_events, 5, 20) == list(range(5, 20))
    assert not early


def test_headers_that_are_not_an_event_s_are_dropped_and_all_others_count(
    pool_events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool_events.send(1)
    large = {"x-event": "e" * 60_000, "x-outcome": [1] * 1000, "mine": ["x"] * 1000}
    pool_events.publish([("k", large)] * 20)
    monkeypatch.setattr(consumer, "BATCH_BYTES", 100_000)

    found = list(stream.read(pool_events.monitor_uri, pool_events.stream, 0, 21, size=1000))

    batches = [part for part in found if not isinstance(part, stream.UnreadMessage)]
    assert offsets_of(found)[0] == list(range(21))
    assert len(batches) > 1
    last = batches[-1][-1].headers
    assert last == {"x-event": "e" * 60_000}


@pytest.mark.full
def test_the_end_is_found_behind_a_chunk_that_holds_no_message(pool_events: Events) -> None:
    # Given small segments, each of which begins with a note of the broker's own
    pool_events.make_again(**{"x-stream-max-segment-size-bytes": 5_000})
    for _ in range(8):
        pool_events.send(20)
        # I expect its bounds to be those of what can be read
        found = stream.bounds(pool_events.monitor_uri, pool_events.stream)
        assert found is not None
        read = offsets(pool_events, 0, 10_000)
        assert found == Bounds(read[0], read[-1] + 1)
        assert len(read) == pool_events.sent
        assert stream._end(pool_events.monitor_uri, pool_events.stream, read[0]) == found.end
