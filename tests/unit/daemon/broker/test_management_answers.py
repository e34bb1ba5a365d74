"""What is read from answers of the management API: which queue is ours, what has an alarm, who is bound to whom."""

from __future__ import annotations

from typing import Any

import pytest

from osrdyne.broker import management_answers
from osrdyne_protocol.broker.topology import Binding


def queue(name: str = "core-req-42", kind: str = "quorum", key: object = "42") -> dict[str, Any]:
    return {"name": name, "type": kind, "arguments": {"x-queue-type": kind, "x-osrdyne-key": key}}


@pytest.mark.parametrize(
    ("raw", "key"),
    [
        (queue(), "42"),
        (queue("core-req-", key=""), ""),
        (queue("a-b-req-x-req-y", key="x-req-y"), "x-req-y"),
        (queue(key="43"), None),
        (queue(key=42), None),
        (queue(kind="classic"), None),
        (queue() | {"arguments": None}, None),
        (queue() | {"arguments": {}}, None),
        (queue("core-req-~x", key="~x"), None),
    ],
)
def test_a_queue_is_ours_when_it_is_what_its_name_says(raw: dict[str, Any], key: str | None) -> None:
    assert management_answers.own_key(raw) == key


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ('{"status":"failed","alarms":[{"node":"b","resource":"memory"},{"node":"a","resource":"memory"}]}', "memory"),
        ('{"alarms":[{"resource":"memory"},{"resource":"disk"}]}', "disk, memory"),
        ('{"alarms":[]}', None),
        ("<html>", None),
        ("[]", None),
    ],
)
def test_an_alarm_is_named_by_its_resources_and_other_answers_are_none(answer: str, said: str | None) -> None:
    assert management_answers.alarms(answer) == said


def test_bindings_of_queues_and_of_exchanges_are_told_apart_and_those_of_the_default_exchange_left_out() -> None:
    def binding(source: str, to: str) -> dict[str, Any]:
        return {"source": source, "destination": "x", "destination_type": to, "routing_key": "k"}

    bindings = [binding("", "queue"), binding("a", "queue"), binding("a", "exchange")]
    found = management_answers.topology([], [], bindings, [], [], [], [])
    assert found.bindings == (Binding("a", "x", "k"), Binding("a", "x", "k", "exchange"))
