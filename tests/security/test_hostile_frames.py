"""What a broker hands on of hostile publishers: each message comes as it is, and no content ends the connection.

Also with mistakes that are planted in the reader of frames: what is generated shows each of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from unittest import mock

import pytest
from hypothesis import strategies as st
from pika import spec

from osrdyne_amqp import Connection, Message
from osrdyne_amqp.codec import content, frames
from osrdyne_amqp.codec.table import MAX_DEPTH, MOST_FIELDS, MOST_NESTED
from osrdyne_amqp.connecting import wire
from osrdyne_amqp.errors import BrokerError
from osrdyne_protocol.event_batches import MAX_BATCH_BYTES
from testbed.hostile import chance
from testbed.hostile import frames as hostile
from testbed.hostile.chance import LIMITS, drawn
from testbed.hostile.frames import Content, handed_on
from testbed.waiting import PATIENCE_SECONDS
from tests.broker.fake_broker import fake_broker, method
from tests.simulation.many_seeds import first_seed

FIRST = first_seed()
COUNT = 80
SEEDS = [FIRST, *(pytest.param(FIRST + more, marks=pytest.mark.full) for more in range(1, 10))]


async def received(sent: Sequence[list[bytes]]) -> tuple[list[Message], BrokerError | None]:
    """Have a broker deliver the frames of contents and hang up: what came, and why the connection ended."""
    async with fake_broker() as broker:
        connection = await Connection.open(broker.uri, name="test")
        channel = await connection.channel()
        seen: list[Message] = []
        with mock.patch.object(connection._wire, "new_consumer_tag", return_value="TAG"):
            await channel.consume("q", seen.append, on_cancel=lambda: None, no_ack=True)
        for tag, parts in enumerate(sent):
            broker.send(method(1, spec.Basic.Deliver("TAG", tag, False, "", "key")), *parts)
        broker.writers[-1].write_eof()
        reason = await asyncio.wait_for(connection.wait_closed(), PATIENCE_SECONDS)
        await connection.close()
    return seen, reason


async def see(contents: list[Content]) -> None:
    """Raise AssertionError unless each content comes with its body, and with its headers if they are read."""
    seen, reason = await received([content.frames for content in contents])
    assert reason is not None
    assert reason.code == 0, reason
    assert [delivery.delivery_tag for delivery in seen] == list(range(len(contents)))
    for message, given in zip(seen, contents, strict=True):
        assert message.body == b"".join(given.parts)
        assert (message.malformed is not None) == (len(given.header) > LIMITS["headers that are read"] or many(given))
        if message.malformed is None:
            assert message.properties_size == len(given.header)


def many(given: Content) -> bool:
    """Whether there are too many headers: those that are generated have numbers as their names."""
    return b"\x04%d" % chance.MOST_FIELDS in given.header


@pytest.mark.parametrize("seed", SEEDS)
async def test_whatever_is_handed_on_comes_as_it_is(seed: int) -> None:
    await see(drawn(handed_on(), seed, COUNT))


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_frame_of_no_kind_within_a_message_ends_the_connection(seed: int) -> None:
    known = (hostile.METHOD, hostile.HEADER, hostile.BODY, hostile.HEARTBEAT)
    kinds = st.integers(0, 255).filter(lambda kind: kind not in known)
    strays = st.tuples(handed_on().filter(lambda frame: bool(frame.parts)), kinds, st.binary(max_size=60))
    for given, kind, data in drawn(strays, seed, 10):
        head, *parts = given.frames
        seen, reason = await received([[head, hostile.frame(kind, 1, data), *parts]])
        assert seen == []
        assert reason is not None
        assert reason.code == 501, reason


def test_limits_are_those_of_the_programs() -> None:
    assert LIMITS["headers that are read"] == frames.longest_read(LIMITS["a frame"])
    assert LIMITS["tables and arrays within headers that are read"] == MOST_NESTED
    assert LIMITS["a batch of events"] == MAX_BATCH_BYTES
    assert (chance.MOST_FIELDS, chance.MOST_DEPTH) == (MOST_FIELDS, MAX_DEPTH)


# --- planted mistakes -------------------------------------------------------------------------------------------------


def _all_but_last(kind: int, self: content.Content, data: bytes, at: int, stop: int) -> None:
    """What remains of a body is one less than it is."""
    if kind == frames.HEADER and self._missing > 1:
        self._missing -= 1


def _patched(after: Callable[..., None]) -> Callable[..., bool]:
    receive = content.Content.receive

    def patched(self: content.Content, kind: int, data: bytes, at: int, stop: int) -> bool:
        taken = receive(self, kind, data, at, stop)
        after(kind, self, data, at, stop)
        return taken

    return patched


#: Where a mistake is, and what stands there then.
MISTAKES: dict[str, tuple[object, str, object]] = {
    "a long header ends the connection": (wire, "_LONGEST_HEADER", 0),
    "a header beyond a frame ends the connection": (wire, "longest_read", lambda _: -1),
    "a header as long as what is read is not read": (frames, "longest_read", lambda size: 2 * size - 1),
    "a header beyond a frame is not read": (frames, "longest_read", lambda size: size),
    "headers of any length are read": (frames, "longest_read", lambda size: 3 * size),
    "one byte more of a body is waited for": (
        frames,
        "read_body_size",
        lambda data, at, real=frames.read_body_size: real(data, at) + 1,
    ),
    "the last byte of a body is not waited for": (content.Content, "receive", _patched(_all_but_last)),
}


@pytest.mark.parametrize("mistake", MISTAKES)
async def test_a_mistake_in_the_reader_of_frames_is_seen(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, name, wrong = MISTAKES[mistake]
    monkeypatch.setattr(place, name, wrong)

    # Of frames that another seed draws, none may have a header of the length in which a mistake shows.
    with pytest.raises(AssertionError):
        await see(drawn(handed_on(), 1, COUNT))
