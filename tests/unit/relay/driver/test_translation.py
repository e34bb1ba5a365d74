"""A request of a pool on the relay, and a response of the relay in the pool."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from osrdyne_relay import (
    CallFailed,
    Cancelled,
    DataLost,
    InvalidCall,
    NotCollected,
    PeerGone,
    RedisAway,
    RelayError,
    Response,
    Stage,
    TooLarge,
    UnreadableResponse,
)
from osrdyne_relay.driver.translation import answer_of, failure_of, request_of, waits_for
from osrdyne_relay.worker.request_runner import ReceivedRequest
from osrdyne_worker import Reject, Request, Requeue, WorkerError


def made(
    headers: Mapping[str, object] | None = None, *, deadline: float | None = None, redelivered: bool = False
) -> Request:
    return Request("a/key", b"body", headers or {}, "call-1", redelivered, deadline)


@pytest.mark.parametrize(("deadline", "redelivered"), [(None, False), (1_800_000_000.5, True)])
def test_a_handler_behind_the_relay_gets_what_one_over_amqp_gets(deadline: float | None, redelivered: bool) -> None:
    request = made({"who": "me"}, deadline=deadline, redelivered=redelivered)

    sent = request_of(request)
    given = Request(**ReceivedRequest("http://node", "an id", "core/a/key", sent.headers, sent.body, {}).fields())

    assert (given.key, given.body, given.correlation_id) == ("a/key", b"body", "call-1")
    assert (given.redelivered, given.deadline, given.headers["who"]) == (redelivered, deadline, "me")


def test_headers_that_are_not_text_and_those_that_the_relay_sets_do_not_travel() -> None:
    sent = request_of(
        made({"count": 3, "x-redelivered": "true", "x-correlation-id": "a stranger's", "x-deadline": "1"})
    )

    assert sent.headers == {"x-correlation-id": "call-1"}


@pytest.mark.parametrize("text", ["", "soon", "-1", "1e3", "9" * 40, "٣"])
def test_a_deadline_that_is_not_a_time_is_none(text: str) -> None:
    assert ReceivedRequest("u", "an id", "e", {"x-deadline": text}, b"", {}).fields()["deadline"] is None


@pytest.mark.parametrize(
    ("deadline", "seconds"), [(None, 600.0), (1_000_030.0, 30.0), (1_009_999.0, 600.0), (999_999.0, 0.001)]
)
def test_a_request_waits_up_to_its_deadline_and_no_longer_than_its_queue_would_keep_it(
    deadline: float | None, seconds: float
) -> None:
    assert waits_for(made(deadline=deadline), 600.0, 1_000_000.0) == seconds


def test_an_answer_is_its_body() -> None:
    assert answer_of(Response(b"fine")) == b"fine"
    assert answer_of(Response(b"fine", {"x-status": "ok", "x-other": "1"})) == b"fine"


@pytest.mark.parametrize(
    ("status", "kind"),
    [("rejected", Reject), ("error", WorkerError), ("expired", Requeue), ("maxlen", WorkerError), ("", WorkerError)],
)
def test_a_response_with_another_status_is_what_a_handler_raises(status: str, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        answer_of(Response(b"why", {"x-status": status, "x-reason": "a reason"}))


def test_reason_and_body_of_an_error_are_kept() -> None:
    with pytest.raises(WorkerError) as failed:
        answer_of(Response(b"why", {"x-status": "error", "x-reason": "a reason"}))
    assert (failed.value.body, failed.value.reason) == (b"why", "a reason")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (NotCollected(), Requeue),
        (PeerGone(), Requeue),
        (DataLost(), Requeue),
        (RedisAway(), Requeue),
        (CallFailed("the worker stopped"), Requeue),
        (Cancelled(Stage.WHILE_RUNNING), Requeue),
        (TooLarge("2 MB"), Reject),
        (InvalidCall("no such endpoint"), Reject),
        (UnreadableResponse(), WorkerError),
    ],
)
def test_what_may_have_run_or_not_goes_back_and_what_cannot_be_sent_is_refused(
    error: RelayError, kind: type[Exception]
) -> None:
    assert type(failure_of(error)) is kind
