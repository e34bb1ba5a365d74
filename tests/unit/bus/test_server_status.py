"""What a server says of itself survives the wire, and what is none of it is refused."""

from __future__ import annotations

import json

import pytest

from osrdyne_bus.endpoints import Endpoint
from osrdyne_bus.server_status import ServerStatus, described

STATUS = ServerStatus(
    server="n1",
    host="web-3",
    process=4711,
    endpoints=("maps 1.2: echo, find",),
    waiting=3,
    running=64,
    concurrency=64,
    lost_replies=1,
)


def test_a_status_is_read_as_it_was_written_also_from_a_later_version() -> None:
    assert ServerStatus.from_json(STATUS.to_json()) == STATUS
    later = {**json.loads(STATUS.to_json()), "weather": "fine"}
    assert ServerStatus.from_json(json.dumps(later).encode()) == STATUS


BODIES = [b"", b"\xff", b"[]", b"7", b"{}", b'{"server": "n"}', b"[" * 100_000]


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
def test_another_body_is_not_a_status(body: bytes) -> None:
    with pytest.raises(ValueError, match="this is not an answer of a server to 'ping'"):
        ServerStatus.from_json(body)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("host", "\ud800"),
        ("host", [[1]]),
        ("server", None),
        ("endpoints", "maps"),
        ("endpoints", ["\udfff"]),
        ("running", float("nan")),
        ("process", True),
        ("waiting", "3"),
    ],
)
def test_a_field_of_another_type_or_that_cannot_be_printed_is_not_a_status(field: str, value: object) -> None:
    changed = {**json.loads(STATUS.to_json()), field: value}
    with pytest.raises(ValueError, match=r"a field has the wrong type|NaN|half of a surrogate pair"):
        ServerStatus.from_json(json.dumps(changed).encode())


def test_an_endpoint_is_described_by_its_version_and_its_methods() -> None:
    maps, nameless = Endpoint("maps", "1.2"), Endpoint()
    maps.add("find", print)
    maps.add("echo", print)
    assert described([maps, nameless]) == ("maps 1.2: echo, find", "- 1.0: ")
