"""What requests, replies and notifications look like as messages, and what is read from foreign ones."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osrdyne_bus.errors import DeliveryFailure
from osrdyne_bus.messages.envelopes import Envelope, Header
from osrdyne_bus.messages.wire import (
    BusRequest,
    Notification,
    notification_envelope,
    read_notification,
    read_reply,
    read_request,
    reply_envelope,
    request_envelope,
)
from osrdyne_calls.errors import Expired, RemoteError, WorkerFailed
from osrdyne_calls.handling import Outcome, class_name
from osrdyne_calls.replies import Reply

TEXT = st.text(max_size=30)
HEADERS = st.dictionaries(TEXT.filter(lambda name: not name.startswith("x-")), TEXT | st.integers() | st.booleans())


@given(
    st.builds(
        BusRequest,
        method=TEXT,
        body=st.binary(),
        namespace=TEXT,
        version=st.just("2.3"),
        headers=HEADERS,
        content_type=st.none() | TEXT,
        deadline=st.none() | st.integers(0, 2**40).map(lambda ms: ms / 1000),
        id=TEXT,
        reply_to=TEXT,
    )
)
def test_a_request_arrives_as_it_was_sent(request_: BusRequest) -> None:
    arrived = read_request(request_envelope(request_))
    for name in ("method", "body", "namespace", "version", "content_type", "id", "reply_to"):
        assert getattr(arrived, name) == getattr(request_, name)
    assert request_.headers.items() <= arrived.headers.items()
    if request_.deadline is None:
        assert arrived.deadline is None
    else:
        assert abs((arrived.deadline or 0) - request_.deadline) <= 0.001


def test_a_message_without_headers_asks_for_version_1_0_of_the_namespace_without_a_name() -> None:
    read = read_request(Envelope(body=b"x", subject="find"))
    assert (read.method, read.namespace, read.version, read.deadline) == ("find", "", "1.0", None)
    assert not read.wants_reply


def test_headers_that_are_passed_on_from_another_request_do_not_change_what_is_asked_for() -> None:
    passed_on: dict[str, Header] = {"x-version": "2.0", "x-namespace": "other", "mine": 1}
    read = read_request(request_envelope(BusRequest("find", headers=passed_on)))
    assert (read.version, read.namespace, read.headers["mine"]) == ("1.0", "", 1)


@pytest.mark.parametrize("headers", [{"x-deadline": "soon"}, {"x-deadline": True}, {"x-version": 3}])
def test_headers_of_another_type_count_as_absent(headers: dict[str, str | int | bool]) -> None:
    assert read_request(Envelope(headers=headers)) == BusRequest("", headers=headers)


@pytest.mark.parametrize("name", ["call-1", 7, b"\x00\xff", UUID(int=5)])
def test_a_reply_repeats_the_name_of_its_call_with_its_type(name: str | int | bytes | UUID) -> None:
    reply = reply_envelope(BusRequest("find", id=name, reply_to="here"), Outcome(body=b"found"))
    assert (reply.to, reply.correlation_id, reply.body) == ("here", name, b"found")
    read = read_reply(reply)
    assert isinstance(read, Reply)
    assert (read.status, read.body) == ("ok", b"found")


ASKED = BusRequest("find", id="1", reply_to="here")


def test_a_status_that_is_not_ok_is_the_error_that_the_client_of_pools_raises() -> None:
    error = read_reply(reply_envelope(ASKED, Outcome("expired", reason="too late")))
    assert isinstance(error, Expired)
    assert error.reason == "too late"


def test_an_exception_is_raised_as_itself_only_where_its_class_is_allowed() -> None:
    reply = reply_envelope(ASKED, Outcome("error", reason="no such map", error=class_name(LookupError)))
    allowed = {class_name(kind): kind for kind in (LookupError, UnicodeDecodeError)}

    raised = read_reply(reply, allowed)
    assert type(raised) is LookupError
    assert raised.args == ("no such map",)
    assert isinstance(raised.__cause__, RemoteError)

    assert type(read_reply(reply)) is WorkerFailed
    assert type(read_reply(reply, {class_name(ValueError): ValueError})) is WorkerFailed


def test_an_allowed_exception_that_is_not_made_of_one_text_is_the_remote_error() -> None:
    reply = reply_envelope(ASKED, Outcome("error", reason="bad", error=class_name(UnicodeDecodeError)))
    assert type(read_reply(reply, {class_name(UnicodeDecodeError): UnicodeDecodeError})) is WorkerFailed


def test_an_answer_with_the_name_of_an_exception_is_an_answer() -> None:
    reply = reply_envelope(ASKED, Outcome(error=class_name(DeliveryFailure)))
    assert isinstance(read_reply(reply, {class_name(DeliveryFailure): DeliveryFailure}), Reply)


@given(
    st.builds(
        Notification,
        event_type=TEXT,
        body=st.binary(),
        publisher=st.none() | TEXT,
        headers=HEADERS,
        content_type=st.none() | TEXT,
    )
)
def test_a_notification_arrives_as_it_was_sent(notification: Notification) -> None:
    arrived = read_notification(notification_envelope(notification))
    for name in ("event_type", "body", "publisher", "content_type"):
        assert getattr(arrived, name) == getattr(notification, name)
    assert notification.headers.items() <= arrived.headers.items()
