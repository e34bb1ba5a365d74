"""What is read from answers of the management API: which queue is ours, and what has an alarm."""

from __future__ import annotations

from typing import Any

import pytest

from osrdyne.broker import management_answers


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
