"""The broker's address: none of its parameters is dropped in silence."""

from __future__ import annotations

import re

import pytest

from osrdyne_amqp.connecting.opening import parameters
from osrdyne_amqp.errors import InvalidUri

PLACE = "amqp://u:secret@h/v"


def test_what_pika_takes_is_kept() -> None:
    made, _ = parameters(f"{PLACE}?heartbeat=7&channel_max=3", "n", 60, 10)
    assert (made.heartbeat, made.channel_max) == (7, 3)


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("connection_attempts=3", "number 1 behind the ?, that is unknown here"),
        ("retry_delay=1", "number 1 behind the ?, that is unknown here"),
        ("socket_timeout=1", "number 1 behind the ?, that is unknown here"),
        ("stack_timeout=1", "number 1 behind the ?, that is unknown here"),
        ("blocked_connection_timeout=1", "number 1 behind the ?, that is unknown here"),
        ("hartbeat=7", "number 1 behind the ?, that is unknown here"),
        ("heartbeat=", "heartbeat without a value"),
        ("heartbeat=7&heartbeat=8", "heartbeat 2 times"),
    ],
)
def test_what_is_not_used_is_named(query: str, why: str) -> None:
    with pytest.raises(InvalidUri, match=re.escape(why)) as refused:
        parameters(f"{PLACE}?{query}", "n", 60, 10)
    assert "secret" not in str(refused.value)


def test_a_question_mark_in_a_password_is_not_shown() -> None:
    with pytest.raises(InvalidUri) as refused:
        parameters("amqp://u:abc?secret@h/v", "n", 60, 10)
    assert "secret" not in str(refused.value)
