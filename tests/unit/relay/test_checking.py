"""What a caller gives is checked before anything is sent for it."""

from __future__ import annotations

import pytest

from osrdyne_relay.checking import checked_request
from osrdyne_relay.errors import InvalidCall
from osrdyne_relay.messages import Request


@pytest.mark.parametrize("deadline", ["soon", "", "-1", "1.5", "9" * 16])
def test_a_deadline_that_no_worker_could_read_is_refused(deadline: str) -> None:
    with pytest.raises(InvalidCall, match="header x-deadline is the milliseconds since 1970 as digits"):
        checked_request(Request(b"", {"x-deadline": deadline}))


def test_a_deadline_in_milliseconds_is_taken() -> None:
    assert checked_request(Request(b"", {"x-deadline": "1790000000000"})).headers == {"x-deadline": "1790000000000"}
