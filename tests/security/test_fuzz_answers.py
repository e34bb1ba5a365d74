"""Listings of a management API with one value of a wrong kind: refused, or of no consequence for what reads them."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from osrdyne_pool.broker import management_json
from osrdyne_pool.drift import concerning, drift
from osrdyne_pool.lint import lint
from osrdyne_pool.settings import PoolSettings
from osrdyne_pool.topology import topology

EXPECTED = topology(PoolSettings.from_mapping({"name": "core"}))
POLICY = {
    "name": "core-req-xchg",
    "pattern": "^core-req-xchg$",
    "apply-to": "exchanges",
    "definition": {"alternate-exchange": "core-orphan-xchg"},
    "priority": 10,
}
#: One object of each listing, as a RabbitMQ lists it.
LISTED: dict[str, dict[str, Any]] = {
    "exchanges": {"name": "core-req-xchg", "type": "direct", "arguments": {}},
    "queues": {"name": "core-req-42", "type": "quorum", "arguments": {"x-queue-type": "quorum", "x-osrdyne-key": "42"}},
    "bindings": {
        "source": "core-orphan-xchg",
        "destination": "core-orphan",
        "destination_type": "queue",
        "routing_key": "",
    },
    "policies": POLICY,
    "operator-policies": POLICY,
    "users": {"name": "core-client", "tags": ["monitoring"]},
    "permissions": {"user": "core-client", "configure": "^$", "write": "^$", "read": "^$"},
}
WRONG: list[object] = [None, True, 7, 1e400, "x", "", "[", "(?|a)", "(?R)", [], ["x"], [[]], {}, {"x": []}]


def read(listed: dict[str, Any]) -> None:
    """What the daemon and `osrdyne lint` do with the listings; what they expect to be raised is not."""
    with contextlib.suppress(TypeError, KeyError, ValueError, AttributeError, OverflowError):
        found = management_json.read(listed)
        try:
            drift(EXPECTED, found, with_users=True)
            lint(concerning(EXPECTED, found))
        except Exception as error:
            raise AssertionError("what was read cannot be compared") from error


@pytest.mark.parametrize(
    ("listing", "field"), [(listing, field) for listing, fields in LISTED.items() for field in [None, *fields]]
)
def test_a_value_of_a_wrong_kind_never_reaches_a_comparison(listing: str, field: str | None) -> None:
    for wrong in WRONG:
        listed: dict[str, Any] = {name: [entry] for name, entry in LISTED.items()}
        listed[listing] = [wrong if field is None else LISTED[listing] | {field: wrong}]
        read(listed)
        read(listed | {listing: wrong})
        read(listed | {listing: [{name: value for name, value in LISTED[listing].items() if name != field}]})


def test_right_listings_are_read() -> None:
    found = management_json.read({name: [entry] for name, entry in LISTED.items()})

    assert [queue.name for queue in found.queues] == ["core-req-42"]
    assert found.queues[0].arguments == {"x-osrdyne-key": "42"}
    assert found.users[0].tags == ("monitoring",)
