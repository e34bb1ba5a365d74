"""What becomes of a call that waits for a channel to leave on, or whose answer is given up. Under virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from osrdyne_amqp.errors import BrokerTimeout, ConnectionLost
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
        return asyncio.get_running_loop().create_future()


class Link:
    def __init__(self) -> None:
        self.lanes = Lanes()
        self.is_open = True


def core_of(link: Any, *, resend: bool = True) -> Dispatcher:
    options = ClientOptions(slots=4, timeout=60.0, confirm=True, reply="queue", max_body=9, resend=resend, name="test")
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
