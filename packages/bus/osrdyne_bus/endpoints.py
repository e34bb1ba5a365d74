"""What a server can be asked for: methods by namespace and version, and what becomes of a handler's result. Pure.

maps = Endpoint("maps", "1.2")

@maps.method
def find(request: BusRequest) -> bytes: ...
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from osrdyne_bus.messages.envelopes import words
from osrdyne_bus.messages.wire import BusRequest
from osrdyne_calls.handling import Outcome, Reject, WorkerError, class_name, expired, text_of
from osrdyne_protocol import statuses
from osrdyne_protocol.headers import deadline_problem

#: A plain function runs in a thread, an `async def` on the loop. None is an empty answer.
Method = Callable[[BusRequest], bytes | None] | Callable[[BusRequest], Awaitable[bytes | None]]
MethodT = TypeVar("MethodT", bound=Callable[..., object])


class NoSuchMethod(Exception):
    """No endpoint of this server has the method that a request asks for; the text says why."""


class Endpoint:
    """The methods of one namespace, in one version. Versions are MAJOR.MINOR."""

    def __init__(self, namespace: str = "", version: str = "1.0") -> None:
        """Begin without methods. Raises ValueError for a version that is not two numbers with a dot between."""
        self.namespace = namespace
        self.version = version
        self.methods: dict[str, Method] = {}
        self.number = number_of(version)

    def method(self, handler: MethodT) -> MethodT:
        """Add a handler under the name of its function, and return it: a decorator."""
        self.add(handler.__name__, handler)  # type: ignore[arg-type]
        return handler

    def add(self, name: str, handler: Method) -> None:
        """Add a handler under a name. Raises ValueError where the name is taken."""
        if name in self.methods:
            raise ValueError(f"the endpoint {self.namespace!r} {self.version} has a method {name!r} already")
        self.methods[name] = handler

    def serves(self, namespace: str, wanted: tuple[int, int]) -> bool:
        """Return whether a caller that knows the version `wanted` can be served: same major, and no newer minor."""
        return self.namespace == namespace and self.number[0] == wanted[0] and self.number[1] >= wanted[1]


def number_of(version: str) -> tuple[int, int]:
    """Return a version as numbers. Raises ValueError."""
    if not (found := re.fullmatch(r"([0-9]{1,9})\.([0-9]{1,9})", version)):
        raise ValueError(f"version {version[:40]!r} is not MAJOR.MINOR, as in 1.0")
    return int(found[1]), int(found[2])


def find(endpoints: Iterable[Endpoint], request: BusRequest) -> Method:
    """Return the handler for a request. Raises NoSuchMethod."""
    try:
        wanted = number_of(request.version)
    except ValueError as error:
        raise NoSuchMethod(str(error)) from None
    served = [endpoint for endpoint in endpoints if endpoint.namespace == request.namespace]
    fitting = [endpoint for endpoint in served if endpoint.serves(request.namespace, wanted)]
    for endpoint in sorted(fitting, key=lambda endpoint: endpoint.number, reverse=True):
        if request.method in endpoint.methods:
            return endpoint.methods[request.method]
    asked = f"method {request.method[:80]!r} of namespace {request.namespace[:80]!r} in version {request.version}"
    if served and not fitting:
        has = ", ".join(sorted(endpoint.version for endpoint in served))
        raise NoSuchMethod(f"there is no {asked}: this server has version {has}")
    raise NoSuchMethod(f"there is no {asked}")


def late(request: BusRequest, now: float) -> Outcome | None:
    """Return the answer to a request whose caller stopped waiting before `now`, in seconds since 1970; else None.

    A request whose deadline cannot be read is not begun either.
    """
    if (problem := deadline_problem(request.headers)) is not None:
        return Outcome(statuses.REJECTED, reason=problem)
    return expired(request.deadline, now, "server")


def answer_to(result: object) -> Outcome:
    """Return the answer for what a handler returned."""
    if result is None:
        return Outcome()
    if isinstance(result, bytes | bytearray | memoryview):
        return Outcome(body=bytes(result))
    reason = f"the handler returned {type(result).__name__}; it has to return bytes, or None for an empty answer"
    return Outcome(statuses.ERROR, reason=reason)


def answer_to_failure(error: BaseException) -> Outcome:
    """Return the answer for what a handler raised: `rejected` for Reject and NoSuchMethod, `error` for all else.

    The caller gets class and text of the exception, and not its traceback.
    """
    if isinstance(error, Reject | NoSuchMethod):
        return Outcome(statuses.REJECTED, reason=words(text_of(error)) or None)
    if isinstance(error, WorkerError):
        body = answer_to(error.body)
        return Outcome(statuses.ERROR, body.body, None if error.reason is None else words(str(error.reason)))
    said = words(text_of(error)) or type(error).__name__
    return Outcome(statuses.ERROR, reason=said, error=class_name(type(error)))
