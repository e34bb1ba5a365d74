"""Which handler a request gets, by namespace, version and method, and what is answered for what a handler does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osrdyne_bus.endpoints import Endpoint, NoSuchMethod, answer_to, answer_to_failure, find, late
from osrdyne_bus.messages.wire import BusRequest
from osrdyne_calls.handling import Outcome, Reject, WorkerError


def endpoint(namespace: str, version: str, *names: str) -> Endpoint:
    made = Endpoint(namespace, version)
    for name in names:
        made.add(name, lambda request: request.body)
    return made


def test_a_method_has_the_name_of_its_function() -> None:
    maps = Endpoint("maps", "1.2")

    @maps.method
    def find_map(request: BusRequest) -> bytes:
        return request.body

    assert find([maps], BusRequest("find_map", namespace="maps", version="1.0")) is find_map
    with pytest.raises(ValueError, match="has a method 'find_map' already"):
        maps.add("find_map", find_map)


NUMBERS = st.tuples(st.integers(0, 3), st.integers(0, 3))


@given(st.lists(NUMBERS, unique=True), NUMBERS)
def test_a_request_gets_the_newest_endpoint_of_its_major_version_that_is_not_older(
    served: list[tuple[int, int]], wanted: tuple[int, int]
) -> None:
    endpoints = [endpoint("maps", f"{major}.{minor}", "find") for major, minor in served]
    asked = BusRequest("find", namespace="maps", version=f"{wanted[0]}.{wanted[1]}")
    fitting = [address for address in served if address[0] == wanted[0] and address[1] >= wanted[1]]
    if not fitting:
        with pytest.raises(NoSuchMethod):
            find(endpoints, asked)
    else:
        newest = max(fitting)
        assert find(endpoints, asked) is endpoints[served.index(newest)].methods["find"]


def test_an_older_endpoint_serves_a_method_that_the_newest_does_not_have() -> None:
    old, new = endpoint("maps", "1.0", "find"), endpoint("maps", "1.4", "search")
    assert find([old, new], BusRequest("find", namespace="maps")) is old.methods["find"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (BusRequest("find", namespace="roads"), "no method 'find' of namespace 'roads' in version 1.0$"),
        (BusRequest("lose", namespace="maps"), "no method 'lose' of namespace 'maps' in version 1.0$"),
        (BusRequest("find", namespace="maps", version="2.0"), "this server has version 1.1, 1.3"),
        (BusRequest("find", namespace="maps", version="1.4"), "this server has version 1.1, 1.3"),
        (BusRequest("find", namespace="maps", version="one"), "version 'one' is not MAJOR.MINOR"),
        (BusRequest("find", namespace="maps", version="1.0\n"), "is not MAJOR.MINOR"),
        (BusRequest("find", namespace="maps", version="1.٣"), "is not MAJOR.MINOR"),
        (BusRequest("__class__", namespace="maps"), "no method '__class__'"),
    ],
)
def test_a_request_that_no_endpoint_serves_is_refused_with_what_there_is(asked: BusRequest, said: str) -> None:
    endpoints = [endpoint("maps", "1.3", "find"), endpoint("maps", "1.1", "find")]
    with pytest.raises(NoSuchMethod, match=said):
        find(endpoints, asked)


def test_an_endpoint_needs_a_version_of_two_numbers() -> None:
    with pytest.raises(ValueError, match=r"version '1' is not MAJOR.MINOR"):
        Endpoint("maps", "1")


def test_a_request_whose_caller_has_left_is_answered_and_not_begun() -> None:
    assert late(BusRequest("find", deadline=100.0), 99.9) is None
    assert late(BusRequest("find"), 1e12) is None
    answer = late(BusRequest("find", deadline=100.0), 102.5)
    assert answer == Outcome("expired", reason="the deadline passed 2.5 s before a server could begin")


@pytest.mark.parametrize("deadline", ["soon", 1.5, True, b"1"])
def test_a_request_whose_deadline_cannot_be_read_is_refused_and_not_begun(deadline: Any) -> None:
    answer = late(BusRequest("find", headers={"x-deadline": deadline}), 0.0)

    assert answer is not None
    assert answer.status == "rejected"
    assert "write milliseconds since 1970" in str(answer.reason)


@pytest.mark.parametrize(
    ("result", "answer"),
    [
        (None, Outcome()),
        (b"x", Outcome(body=b"x")),
        (bytearray(b"x"), Outcome(body=b"x")),
        (
            "x",
            Outcome("error", reason="the handler returned str; it has to return bytes, or None for an empty answer"),
        ),
    ],
)
def test_a_handler_answers_with_bytes_or_nothing(result: object, answer: Outcome) -> None:
    assert answer_to(result) == answer


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (Reject("not here"), Outcome("rejected", reason="not here")),
        (NoSuchMethod("no method"), Outcome("rejected", reason="no method")),
        (WorkerError(b"body", "why"), Outcome("error", b"body", "why")),
        (LookupError("gone"), Outcome("error", reason="gone", error="builtins.LookupError")),
        (LookupError(), Outcome("error", reason="LookupError", error="builtins.LookupError")),
        (OSError("caf\udce9"), Outcome("error", reason="caf?", error="builtins.OSError")),
    ],
)
def test_the_caller_gets_class_and_text_of_an_exception(error: Exception, answer: Outcome) -> None:
    assert answer_to_failure(error) == answer
