"""What a worker decides about a request, without any broker."""

from __future__ import annotations

import asyncio
import logging
import pickle
import time

import pytest

from osrdyne_calls import handling
from osrdyne_calls.handling import (
    Outcome,
    Reject,
    Request,
    Requeue,
    WorkerError,
    deadline_of,
    error_if_too_large,
    invoke,
    invoke_async,
)


def request(deadline: float | None = None) -> Request:
    return Request("key", b"body", {"a": 1}, "id", redelivered=False, deadline=deadline)


def raising(error: BaseException) -> Outcome:
    def handle(_: Request) -> bytes:
        raise error

    return invoke(handle, request())


@pytest.mark.parametrize(
    ("answer", "body"), [(b"yes", b"yes"), (bytearray(b"b"), b"b"), (memoryview(b"m"), b"m"), (None, b"")]
)
def test_bytes_and_none_are_answers(answer: bytes | None, body: bytes) -> None:
    assert invoke(lambda _: answer, request()) == Outcome("ok", body)


def test_anything_else_is_an_error_that_says_what_to_return() -> None:
    outcome = invoke(lambda _: "text", request())  # type: ignore[arg-type, return-value]
    assert outcome.status == "error"
    assert b"return bytes" in outcome.body


def test_the_verdicts_of_a_handler() -> None:
    assert raising(Requeue()) == Outcome("requeued")
    assert raising(Reject("no such flight")) == Outcome("rejected", reason="no such flight")
    assert raising(WorkerError(b"details", "sorry")) == Outcome("error", b"details", "sorry")


class Records(logging.Handler):
    """Keeps what is logged. Not pytest's `caplog`: that puts the text, which here is not valid UTF-8, in its report."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[logging.LogRecord]:
    """What the module under test logs."""
    handler, logger = Records(), logging.Logger("test")  # noqa: LOG001 -- one that pytest does not find
    logger.addHandler(handler)
    monkeypatch.setattr(handling, "log", logger)
    return handler.records


@pytest.mark.parametrize("error", [ValueError("bad \udcff input"), KeyError("x"), SystemExit(3), KeyboardInterrupt()])
def test_an_unexpected_exception_is_answered_and_logged_with_its_traceback(
    error: BaseException, logged: list[logging.LogRecord]
) -> None:
    outcome = raising(error)
    assert outcome.status == "error"
    assert outcome.body.startswith(type(error).__name__.encode())
    assert b"Traceback" not in outcome.body
    assert logged[0].exc_info
    assert logged[0].__dict__["request_id"] == "id"


class Unprintable(Exception):
    def __str__(self) -> str:
        raise LookupError


def test_an_exception_that_has_no_text_is_answered_with_its_class(logged: list[logging.LogRecord]) -> None:
    assert raising(Unprintable()).body == b"Unprintable: "
    assert logged[0].exc_info


def test_a_request_past_its_deadline_is_not_executed() -> None:
    def handle(_: Request) -> bytes:
        raise AssertionError

    assert invoke(handle, request(deadline=time.time() - 1)).status == "expired"
    assert invoke(lambda _: b"", request(deadline=time.time() + 100)).status == "ok"


def test_an_async_handler_is_treated_alike() -> None:
    async def handle(one: Request) -> bytes:
        if one.key == "key":
            raise Reject("no")
        return b""

    assert asyncio.run(invoke_async(handle, request())) == Outcome("rejected", reason="no")
    assert asyncio.run(invoke_async(handle, request(deadline=1.0))).status == "expired"


def test_a_deadline_is_read_from_whole_milliseconds_only() -> None:
    assert deadline_of({"x-deadline": 1_700_000_000_500}) == 1_700_000_000.5
    for value in ("1700000000500", 1.5, True, None, b"1"):
        assert deadline_of({"x-deadline": value}) is None
    assert deadline_of({}) is None


def test_an_answer_larger_than_may_be_sent_becomes_an_error_that_names_both_sizes() -> None:
    assert error_if_too_large(Outcome("ok", b"1234"), 4) == Outcome("ok", b"1234")
    error = error_if_too_large(Outcome("ok", b"12345"), 4)
    assert (error.status, error.body) == ("error", b"")
    assert "5 bytes" in str(error.reason)
    assert "4" in str(error.reason)


@pytest.mark.parametrize("value", [request(), Outcome("ok", b"x"), Requeue(), Reject("r"), WorkerError(b"b", "r")])
def test_what_crosses_to_a_process_pool_can_be_pickled(value: object) -> None:
    copy = pickle.loads(pickle.dumps(value))  # noqa: S301
    assert type(copy) is type(value)
    assert getattr(copy, "__dict__", None) == getattr(value, "__dict__", None)


class OwnError(WorkerError):
    def __init__(self) -> None:
        """As a user may write it: without ours."""


class OwnReject(Reject):
    def __init__(self) -> None:
        """As a user may write it: without ours."""


@pytest.mark.parametrize(("error", "status"), [(OwnError(), "error"), (OwnReject(), "rejected")])
def test_an_error_of_a_class_of_the_users_that_leaves_out_our_init_is_an_answer(error: Exception, status: str) -> None:
    assert raising(error).status == status
