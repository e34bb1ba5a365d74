"""Requests that name a job for a worker: what is read of those that a stranger sent."""

from __future__ import annotations

import pytest

from osrdyne_jobs import messages


def test_the_type_of_a_job_comes_out_as_it_was_cast() -> None:
    assert messages.decode(messages.encode("route", 7)) == "route"


@pytest.mark.parametrize("job", ["true", "null", "1.5", "9223372036854775808", "1" * 300, '"7"'])
def test_a_job_that_cannot_be_an_id_does_not_matter(job: str) -> None:
    assert messages.decode(f'{{"type": "route", "job": {job}}}'.encode()) == "route"


@pytest.mark.parametrize("body", [b"", b"\xff", b"[" * 4000, b'{"type": "\\ud800"}', b"[]", b'{"type": 5}'])
def test_what_names_no_type_is_not_a_hint(body: bytes) -> None:
    with pytest.raises(messages.NotAHint, match="jobs are cast by osrdyne_jobs"):
        messages.decode(body)


def test_a_hint_with_much_else_in_it_is_not_read() -> None:
    body = b'{"type": "route", "job": 7, "more": [%s]}' % b",".join([b"1"] * 100_000)

    with pytest.raises(messages.NotAHint, match="bytes, of at most"):
        messages.decode(body)
