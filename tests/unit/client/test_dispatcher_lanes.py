"""What becomes of a call that waits for a channel to leave on, or whose answer is given up. Under virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from osrdyne_amqp.errors import BrokerTimeout, ConnectionLost
from osrdyne_calls.waits import Wait
from osrdyne_client import dispatcher
from osrdyne_client.calls import PendingCall, State
from osrdyne_client.dispatcher import ClientOptions, Dispatcher
from osrdyne_client.errors import CallTimeout
from tests.unit.stand_ins import retrieve

pytestmark = pytest.mark.looptime


class Lanes:
    """Lets each message leave when a test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[Any], Any], asyncio.Future[None]]] = []
        #: Keys of what has left.
        self.left: list[str] = []
        #: When they left, as they say themselves.
        self.stamps: list[int | None] = []

    def shared(self, key: str) -> None:
        """No key is proven."""

    def prove(self, key: str, send: Callable[[Any], Any]) -> asyncio.Future[None]:
        self.waiting.append((send, asyncio.get_running_loop().create_future()))
        return self.waiting[-1][1]

    def let_leave(self) -> asyncio.Future[None]:
        """Send what came first; return the confirm that its caller waits for."""
        send, outcome = self.waiting.pop(0)
        if not outcome.done():
            send(self)
        return outcome

    def publish(
        self, exchange: str, key: str, body: bytes, properties: Any, *, mandatory: bool
    ) -> asyncio.Future[None]:
        self.left.append(key)
        self.stamps.append((properties.headers or {}).get("x-publish-time"))
        return asyncio.get_running_loop().create_future()


class Link:
    def __init__(self) -> None:
        self.lanes = Lanes()
        self.is_open = True
        self.blocked_reason: str | None = None


def core_of(link: Any, *, resend: bool = True, confirm: bool = True) -> Dispatcher:
    options = ClientOptions(
        slots=4,
        timeout=60.0,
        connect_timeout=9.0,
        confirm=confirm,
        reply="queue",
        max_body=9,
        resend=resend,
        name="test",
    )
    core = Dispatcher("amqp://user:password@nowhere", "core", options)
    core._loop, core._closed, core._link, core._queue = asyncio.get_running_loop(), False, link, "reply-user-1"
    return core


def asked(core: Dispatcher) -> tuple[PendingCall, asyncio.Future[Any]]:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.add_done_callback(retrieve)
    return core.request("42", b"", future, wants_reply=True), future


async def test_a_call_whose_caller_has_left_before_it_could_leave_is_not_sent() -> None:
    link = Link()
    core = core_of(link)
    call, _ = asked(core)
    core.abandon(call)
    link.lanes.let_leave()
    assert link.lanes.left == []


async def test_a_call_that_timed_out_before_it_could_leave_is_not_sent_and_says_what_it_waited_for() -> None:
    link = Link()
    core = core_of(link)
    _, future = asked(core)
    with pytest.raises(CallTimeout, match="has not answered for requests before it"):
        await future
    link.lanes.let_leave()
    assert link.lanes.left == []


@pytest.mark.parametrize(("resend", "state"), [(True, State.UNSENT), (False, State.SENT)])
async def test_a_call_whose_confirm_is_given_up_waits_on_and_is_left_to_the_next_link(
    resend: bool, state: State
) -> None:
    link = Link()
    call, future = asked(core_of(link, resend=resend))
    confirm = link.lanes.let_leave()
    assert call.state is State.SENT
    confirm.set_exception(BrokerTimeout("no answer"))
    await asyncio.sleep(1.0)
    assert not future.done()
    assert call.state is state


async def test_a_call_whose_link_is_lost_before_it_left_is_sent_over_the_next_one() -> None:
    link = Link()
    core = core_of(link, resend=False)
    _, future = asked(core)
    link.lanes.waiting[0][1].set_exception(ConnectionLost("gone"))
    await asyncio.sleep(1.0)
    assert not future.done()
    following: Any = Link()
    core._link = following
    core._send_unsent()
    following.lanes.let_leave()
    assert following.lanes.left == ["42"]


async def test_a_call_whose_deadline_has_passed_when_it_could_leave_is_not_sent() -> None:
    link = Link()
    call, future = asked(core_of(link))
    assert call.expires is not None
    # Between its deadline and its timeout, or when this process stood still, and its timer has not run.
    await asyncio.sleep(call.expires - asyncio.get_running_loop().time())
    link.lanes.let_leave()
    assert link.lanes.left == []
    assert call.state is State.UNSENT
    with pytest.raises(CallTimeout, match="did not leave in time"):
        await future


# --- what a call waited for ---------------------------------------------------------------------------------------


async def waited(core: Dispatcher) -> CallTimeout:
    """Return the end of the one call that waits."""
    (call,) = core.slots.waiting()
    assert isinstance(call.future, asyncio.Future)
    with pytest.raises(CallTimeout) as caught:
        await call.future
    assert caught.value.wait is not None
    return caught.value


@pytest.mark.parametrize("left", [True, False])
async def test_a_call_that_ends_in_an_alarm_says_so_and_whether_it_had_left(left: bool) -> None:
    link = Link()
    core = core_of(link)
    asked(core)
    if left:
        link.lanes.let_leave()
    link.blocked_reason = "low on disk"
    error = await waited(core)
    assert error.wait is Wait.BLOCKED
    assert "the broker takes no messages in its alarm (low on disk)" in str(error)
    assert ("the request was not sent" in str(error)) is not left


async def test_a_call_that_the_broker_took_before_the_alarm_waits_for_its_worker() -> None:
    link = Link()
    core = core_of(link)
    call, _ = asked(core)
    link.lanes.let_leave().set_result(None)
    await asyncio.sleep(0)
    link.blocked_reason = "low on disk"
    assert call.state is State.ACCEPTED
    error = await waited(core)
    assert error.wait is Wait.CONFIRMED
    assert "the broker took the request, and is in an alarm (low on disk)" in str(error)


class ProvenChannel:
    """A channel on which requests of a key leave at once."""

    def send(self, *_: object, **__: object) -> None:
        """Write a request; no answer comes."""


@pytest.mark.parametrize(("reason", "wait"), [(None, Wait.SENT), ("low on disk", Wait.BLOCKED)])
async def test_a_call_without_confirms_that_was_written_may_be_with_the_broker(reason: str | None, wait: Wait) -> None:
    link = Link()
    link.lanes.shared = lambda key: ProvenChannel()  # type: ignore[assignment,method-assign]
    link.blocked_reason = reason
    core = core_of(link, confirm=False)
    asked(core)
    error = await waited(core)
    assert error.wait is wait
    assert "was not sent" not in str(error)


async def test_a_call_that_had_left_when_the_connection_broke_may_be_with_the_broker() -> None:
    link = Link()
    core = core_of(link)
    asked(core)
    link.lanes.let_leave()
    core._link, core._trouble = None, ConnectionLost("gone")
    error = await waited(core)
    assert error.wait is Wait.CONNECTING
    assert "the broker is away (gone); it may have the request" in str(error)


async def test_a_call_whose_confirm_is_given_up_was_sent_and_is_not_said_to_have_stayed_here() -> None:
    link = Link()
    core = core_of(link)
    asked(core)
    link.lanes.let_leave().set_exception(BrokerTimeout("no answer"))
    error = await waited(core)
    assert error.wait is Wait.SENT
    assert "the broker has not confirmed the request" in str(error)


async def test_a_call_without_a_connection_says_why_there_is_none() -> None:
    core = core_of(None)
    core._trouble = ConnectionLost("nothing listens there")
    asked(core)
    error = await waited(core)
    assert error.wait is Wait.CONNECTING
    assert "the broker is away (nothing listens there)" in str(error)


async def test_a_cast_that_ends_says_that_no_confirm_came() -> None:
    link = Link()
    core = core_of(link)
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    core.request("42", b"", future, wants_reply=False)
    link.lanes.let_leave()
    with pytest.raises(CallTimeout, match="no confirm for key '42' within 60 s"):
        await future


# --- when a request was published ---------------------------------------------------------------------------------


@pytest.mark.looptime
async def test_a_call_says_when_it_left_last_and_a_cast_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "wall_ms", lambda: round(asyncio.get_running_loop().time() * 1000))
    link = Link()
    core = core_of(link)
    call, future = asked(core)
    await asyncio.sleep(2.0)
    confirm = link.lanes.let_leave()
    assert link.lanes.stamps == [2000]
    # Again over the next connection
    confirm.set_exception(ConnectionLost("gone"))
    await asyncio.sleep(3.0)
    following: Any = Link()
    core._link = following
    core._send_unsent()
    following.lanes.let_leave()
    assert following.lanes.stamps == [5000]
    cast: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    core.request("42", b"", cast, wants_reply=False, deadline=False)
    following.lanes.let_leave()
    assert following.lanes.stamps == [5000, None]
    core.abandon(call)
    future.cancel()
