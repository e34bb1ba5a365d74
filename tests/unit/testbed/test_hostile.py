"""What a hostile peer sends is decided by a seed alone, and is of every kind."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st

import steps
from testbed.amqp_1_0 import APPLICATION_PROPERTIES, FOOTER, HEADER, MESSAGE_ANNOTATIONS, SEQUENCE, section
from testbed.hostile import amqp_1_0, frames, http, redis
from testbed.hostile.chance import LIMITS, SIZES, drawn

KINDS: dict[str, Callable[[], st.SearchStrategy[Any]]] = {
    "AMQP 1.0": lambda: amqp_1_0.everything(["/queues/core-orphan"]),
    "messages in frames": lambda: frames.messages("core-req-xchg"),
    "broken frames": lambda: frames.broken("core-req-xchg"),
    "HTTP": lambda: http.requests(["/status"]),
    "Redis": lambda: redis.commands("osrdyne-relay", "e", ["a" * 32], ["b" * 32]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_attacks_and_another_seed_gives_others(kind: str) -> None:
    first = drawn(KINDS[kind](), 1, 60)
    assert drawn(KINDS[kind](), 1, 60) == first
    assert drawn(KINDS[kind](), 2, 60) != first
    assert len(set(map(repr, first))) > 30


def test_messages_of_amqp_1_0_have_every_section_and_every_size_of_types() -> None:
    made = b"".join(drawn(amqp_1_0.everything([]), 1, 150))
    for code in (HEADER, MESSAGE_ANNOTATIONS, APPLICATION_PROPERTIES, SEQUENCE, FOOTER):
        assert section(code, b"") in made
    # Of one, four, eight and sixteen bytes; a UUID, an array, a list of a thousand lists.
    for byte in (b"\x50", b"\x73", b"\x83", b"\x94", b"\x98", b"\xf0"):
        assert byte in made
    assert any(len(frame) > 9000 for frame in drawn(amqp_1_0.everything([]), 1, 150))


def test_a_fair_share_is_as_long_as_a_limit_or_one_more_or_less() -> None:
    limits = {limit + more for limit in LIMITS.values() for more in (-1, 0, 1)}
    assert sum(size in limits for size in drawn(SIZES, 1, 40)) > 15
    made = drawn(amqp_1_0.everything([]), 1, 150)
    assert sum(len(frame) > LIMITS["a frame"] - 200 for frame in made) >= 8
    # Content headers of exactly a frame, and of one byte more, in the second frame of a message.
    heads = [frame[8 + struct.unpack_from(">I", frame, 3)[0] :] for frame in drawn(frames.messages("x"), 1, 150)]
    assert {frames.MOST, frames.MOST + 1} <= {struct.unpack_from(">I", head, 3)[0] for head in heads}


def test_a_message_in_frames_is_three_frames_that_say_their_sizes() -> None:
    data = frames.publish(b"x", b"key", struct.pack(">H", 0), b"body")
    found = []
    while data:
        number, channel, size = struct.unpack_from(">BHI", data)
        assert (channel, data[7 + size : 8 + size]) == (1, b"\xce")
        found.append(number)
        data = data[8 + size :]
    assert found == [frames.METHOD, frames.HEADER, frames.BODY]


def test_a_seed_draws_the_same_whatever_else_a_process_has_imported() -> None:
    code = "from testbed.hostile import frames; from testbed.hostile.chance import drawn; "
    code += "print(drawn(frames.messages('x'), 1, 40))"
    other = subprocess.run([sys.executable, "-c", code], cwd=steps.ROOT, capture_output=True, text=True, check=True)

    assert other.stdout == f"{drawn(frames.messages('x'), 1, 40)}\n"
