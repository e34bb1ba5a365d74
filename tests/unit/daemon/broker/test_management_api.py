"""What is read from an answer of the management API about alarms."""

from __future__ import annotations

import pytest

from osrdyne.broker.management_api import alarms


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ('{"status":"failed","alarms":[{"node":"b","resource":"memory"},{"node":"a","resource":"memory"}]}', "memory"),
        ('{"alarms":[{"resource":"memory"},{"resource":"disk"}]}', "disk, memory"),
        ('{"alarms":[]}', None),
        ("<html>", None),
        ("[]", None),
        ("[" * 100_000, None),
    ],
)
def test_an_alarm_is_named_by_its_resources_and_other_answers_are_none(answer: str, said: str | None) -> None:
    assert alarms(answer) == said
