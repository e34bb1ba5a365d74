"""Which queue is a request queue that the daemon declared, and which only has the name of one."""

from __future__ import annotations

from typing import Any

import pytest

from osrdyne_pool.broker import management_json
from osrdyne_pool.topology import own_key


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
    assert own_key(management_json.queue(raw)) == key
