"""What the end of a link means for a call, and what a reply says. No broker."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

import steps
from osrdyne_amqp import Message, Properties
from osrdyne_client import errors
from osrdyne_client.calls import MOST_COMPLAINTS, PendingCall, failure
from osrdyne_client.replies import Reply, read
from osrdyne_protocol import statuses


def call_of(body: bytes = b"body") -> PendingCall:
    loop = asyncio.new_event_loop()
    future: asyncio.Future[Any] = loop.create_future()
    loop.close()
    return PendingCall("key", body, future, 1.0, wants_reply=True)


def reply_of(headers: dict[str, Any] | None, body: bytes = b"answer") -> Reply | errors.RemoteError:
    properties = Properties(headers=headers, correlation_id="id")
    return read(Message(body, "", "queue", properties, 1, redelivered=False))


def test_a_connection_that_ends_leaves_the_call_to_the_next_one_however_often() -> None:
    call = call_of()
    for code in (0, 320) * 5:
        assert failure(call, errors.ConnectionLost(code=code), resend=True) is None


def test_without_resending_the_call_fails_because_its_fate_is_unknown() -> None:
    result = failure(call_of(), errors.ConnectionLost("gone"), resend=False)
    assert isinstance(result, errors.Unconfirmed)
    assert "'key'" in str(result)


@pytest.mark.parametrize("error", [errors.Returned("no queue"), errors.NotFound("no exchange", code=404)])
def test_a_return_and_a_missing_exchange_mean_that_the_pool_is_not_set_up(error: errors.BrokerError) -> None:
    result = failure(call_of(), error, resend=True)
    assert isinstance(result, errors.Undeliverable)
    assert "osrdyne lint" in str(result)
    assert result.__cause__ is error


def test_a_negative_confirm_fails_the_call() -> None:
    assert isinstance(failure(call_of(), errors.Nacked(), resend=True), errors.Nacked)


def test_the_call_that_is_too_large_for_the_broker_fails_and_the_others_are_sent_again() -> None:
    error = errors.PreconditionFailed("message size 4 is larger than configured max size 3", code=406)
    result = failure(call_of(b"1234"), error, resend=True)
    assert isinstance(result, errors.BodyTooLarge)
    assert (result.size, result.limit) == (4, 3)
    innocent = call_of(b"12")
    for _ in range(10):
        assert failure(innocent, error, resend=True) is None


def test_a_call_that_the_broker_keeps_refusing_for_unknown_reasons_is_given_up() -> None:
    call, error = call_of(), errors.ChannelClosed("strange", code=541)
    assert [failure(call, error, resend=True) for _ in range(MOST_COMPLAINTS)] == [None, None, error]


@pytest.mark.parametrize("value", ["ok", b"ok", bytearray(b"ok")])
def test_a_status_is_read_from_text_and_byte_arrays(value: Any) -> None:
    answer = reply_of({"x-status": value, "x-rpc-path": "p"})
    assert isinstance(answer, Reply)
    assert (answer.status, answer.body, answer.headers["x-rpc-path"]) == ("ok", b"answer", "p")


@pytest.mark.parametrize("headers", [None, {}, {"other": 1}])
def test_a_reply_without_status_is_an_answer(headers: dict[str, Any] | None) -> None:
    assert isinstance(reply_of(headers), Reply)


@pytest.mark.parametrize("value", [7, b"\xff", ["ok"]])
def test_a_status_that_cannot_be_read_is_an_error(value: Any) -> None:
    assert isinstance(reply_of({"x-status": value}), errors.RemoteError)


@pytest.mark.parametrize("status", sorted(set(statuses.STATUSES) - {"ok"}))
def test_each_status_of_the_table_has_an_error_class_of_its_own(status: str) -> None:
    error = reply_of({"x-status": status.encode(), "x-reason": "because"}, b"details")
    assert isinstance(error, errors.RemoteError)
    assert type(error) is errors.REMOTE_ERRORS[status]
    assert type(error) is not errors.RemoteError
    assert (error.status, error.body, error.reason, error.correlation_id) == (status, b"details", "because", "id")
    assert "because" in str(error)


def test_a_status_outside_the_table_is_a_remote_error() -> None:
    error = reply_of({"x-status": "teapot"})
    assert type(error) is errors.RemoteError
    assert error.status == "teapot"


def test_every_error_of_a_call_is_an_osrdyne_error_and_is_in_one_module() -> None:
    page = Path(steps.ROOT, "docs/howto/client.md").read_text()
    table = page.split("## What can be raised")[1].split("\n## ")[0]
    named = {
        name
        for row in table.splitlines()
        if row.startswith("| `")
        for name in re.findall(r"`(\w+)`", row[: row.index("|", 2)])
    }

    assert len(named) > 10
    assert {name for name in named if not issubclass(getattr(errors, name), errors.OsrdyneError)} == set()
