"""Deliberate mistakes, planted into the product's own code for the length of a run: the checker must see each.

Each is what an engineer might write one day. A mistake that no seed notices means that the simulation is blind there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from osrdyne_relay import Relay, time_rules
from osrdyne_relay.call import Call
from osrdyne_relay.errors import Cancelled, DataLost, NotCollected, Stage
from osrdyne_relay.node import Node
from osrdyne_relay.redis import names
from osrdyne_relay.redis.port import Command
from osrdyne_relay.redis.retrying import RetryingRedis, TransactionResult
from osrdyne_relay.redis.transactions import CallerView, ClaimView, EnterView, ServerView, Transactions
from osrdyne_relay.serving import Collected, Inbox

#: An object, the name of an attribute, and what stands there instead.
Patch = tuple[Any, str, Any]

_claim, _enter = Transactions.claim, Transactions.enter
_caller_beat, _server_beat, _run = Transactions.caller_beat, Transactions.server_beat, RetryingRedis.run
_claimed_of, _entered_of, _server_of, _caller_of = ClaimView.of, EnterView.of, ServerView.of, CallerView.of


class _AnyLife(bytes):
    """Equal to every life."""

    __hash__ = bytes.__hash__

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False


def _swapped(commands: list[Command], old: str, new: str) -> list[Command]:
    return [(new, *command[1:]) if command[0] == old else command for command in commands]


def _without(commands: list[Command], name: str) -> list[Command]:
    return [command for command in commands if command[0] != name]


def _claimed_by_all() -> Patch:
    return Transactions, "claim", lambda self, *of: _swapped(_claim(self, *of), "HSETNX", "HSET")


def _any_life_counts() -> Patch:
    def of(answers: list[Any]) -> ClaimView:
        claimed = _claimed_of(answers)
        return ClaimView(claimed.token, claimed.request, _AnyLife())

    return ClaimView, "of", of


def _deleted_at_the_end() -> Patch:
    return Transactions, "_bury", lambda self, key: [("DEL", key)]


def _withdrawn_unseen() -> Patch:
    async def withdraw(self: Call, *, cancel: bool) -> None:
        raise Cancelled(Stage.NEVER_COLLECTED) if cancel else NotCollected()

    return Call, "_withdraw", withdraw


def _server_without_beat() -> Patch:
    return Transactions, "server_beat", lambda self, endpoint, call, number: _server_beat(self, endpoint, call, 1)


def _caller_without_beat() -> Patch:
    def beat(self: Transactions, endpoint: str, call: str, number: int, waits: float | None) -> list[Command]:
        return _caller_beat(self, endpoint, call, 1, waits)

    return Transactions, "caller_beat", beat


def _silence_is_no_reason() -> Patch:
    return time_rules.PeerWatch, "note", lambda self, beat, now: False


def _cancelled_unheard() -> Patch:
    def of(answers: list[Any]) -> ServerView:
        view = _server_of(answers)
        return ServerView(view.claim, view.caller_beat, cancel=False, over=False)

    return ServerView, "of", of


def _request_stays() -> Patch:
    return Transactions, "enter", lambda self, *of: _without(_enter(self, *of), "PEXPIRE")


def _no_second_attempt() -> Patch:
    async def run(self: RetryingRedis, commands: list[Command], **_: Any) -> TransactionResult:
        return await _run(self, commands, retry_for=0.0)

    return RetryingRedis, "run", run


def _pulses_suffice() -> Patch:
    return time_rules.LookSchedule, "looked", lambda self, now: setattr(self, "due", float("inf"))


def _loss_unseen() -> Patch:
    def of(answers: list[Any]) -> CallerView:
        view = _caller_of(answers)
        return CallerView(view.claim, view.server_beat, view.response, there=True)

    return CallerView, "of", of


def _written_again_after_a_loss() -> Patch:
    async def run(self: Node, commands: list[Command]) -> TransactionResult:
        done = await self.retrying.run(commands)
        return TransactionResult(done.answers, maybe_before=False)

    return Node, "run", run


def _taken_along() -> Patch:
    return Inbox, "hand_over", lambda self, collected: None


def _claimed_again_by_another_token() -> Patch:
    hand_over = Relay._hand_over

    async def other(self: Relay, token: str, inbox: Inbox, call: str) -> None:
        await hand_over(self, names.new_token(self._node.id), inbox, call)

    return Relay, "_hand_over", other


def _list_is_never_read() -> Patch:
    async def look(self: Inbox) -> None:
        self._looks.looked(self._node.now())

    return Inbox, "_look", look


def _new_id_is_old() -> Patch:
    return names, "new_token", lambda node: f"{node}.{'0' * 32}"


def _loss_of_claim_unseen() -> Patch:
    unwanted = Collected._unwanted

    def unseen(self: Collected, view: ServerView, *, silent: bool) -> Any:
        found = unwanted(self, view, silent=silent)
        return None if isinstance(found, DataLost) else found

    return Collected, "_unwanted", unseen


MISTAKES: dict[str, Callable[[], Patch]] = {
    "two nodes get one request": _claimed_by_all,
    "two workers of one node get one request": _new_id_is_old,
    "a request of before a loss is run after it": _any_life_counts,
    "a call that has ended leaves no trace": _deleted_at_the_end,
    "a request is given up without looking whether it was collected": _withdrawn_unseen,
    "the serving node does not beat": _server_without_beat,
    "the caller does not beat": _caller_without_beat,
    "a silent peer is waited for": _silence_is_no_reason,
    "the serving node does not see that a call is not wanted": _cancelled_unheard,
    "a request has no time to live": _request_stays,
    "an operation is not tried again": _no_second_attempt,
    "pulses are relied upon": _pulses_suffice,
    "the list of an endpoint is not read": _list_is_never_read,
    "a caller does not see that its request is lost": _loss_unseen,
    "a worker does not hear that its request is lost": _loss_of_claim_unseen,
    "a request that may have run is written again after a loss": _written_again_after_a_loss,
    "a worker that goes away takes a request along": _taken_along,
    "a claim is repeated by another token": _claimed_again_by_another_token,
}


@contextmanager
def planted(mistake: str) -> Iterator[None]:
    """Run with one mistake in the product."""
    target, name, value = MISTAKES[mistake]()
    with mock.patch.object(target, name, value):
        yield
