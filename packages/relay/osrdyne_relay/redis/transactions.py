"""Every change of the relay's keys, as commands for Redis, and what their answers mean. Pure.

Each function returns one transaction over keys of one endpoint. Each may be executed twice, and late: an answer may be
lost, and a connection that was given up may still deliver. So a field that decides something is set by HSETNX, and its
value is read in the same transaction. A call's hash stays for a while after the call has ended.

The *life* of an endpoint is a random value that vanishes with Redis's data. A request names the life in which it was
made, and a node takes it only in that life. So a request that is written again after a loss is not run again.

Every key gets its time to live in the transaction that writes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from osrdyne_relay.redis.names import (
    CALLER_BEAT,
    CANCEL,
    CLAIM,
    OVER,
    REQUEST,
    RESPONSE,
    SERVER_BEAT,
    WITHDRAWN,
    Names,
)
from osrdyne_relay.redis.port import Command

#: All commands of this module. The ACL of docs/howto/relay-nodes.md also has those of connections.
COMMANDS = frozenset(
    {"get", "hdel", "hmget", "hset", "hsetnx", "hstrlen", "lrange", "lrem", "pexpire", "publish", "rpush", "set"}
)


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """How long keys stay, in seconds, after the last transaction that wrote them."""

    #: A call that was collected, and a response.
    response: float = 1200.0
    #: A request that waits: this longer than it may wait.
    waiting_margin: float = 120.0
    #: A list of ids, and a life.
    endpoint: float = 86_400.0
    #: A call that has ended. Longer than a command can be on its way.
    ended: float = 120.0


@dataclass(frozen=True, slots=True)
class EnterView:
    """The answer to `enter`: a request is in Redis."""

    #: The life in which it was written; None where there was none.
    life: bytes | None

    @classmethod
    def of(cls, answers: list[Any]) -> EnterView:
        return cls(life=answers[-2])


@dataclass(frozen=True, slots=True)
class ClaimView:
    """The answer to `claim`."""

    token: bytes | None
    request: bytes | None
    life: bytes | None

    @classmethod
    def of(cls, answers: list[Any]) -> ClaimView:
        (token, request), life = answers[2], answers[4]
        return cls(token, request, life)


@dataclass(frozen=True, slots=True)
class CallerView:
    """What a caller sees of its call."""

    claim: bytes | None
    server_beat: bytes | None
    response: bytes | None
    #: Whether the request is still there. If not, Redis has lost it.
    there: bool

    @classmethod
    def of(cls, answers: list[Any]) -> CallerView:
        claim, beat, response = answers[-2]
        return cls(claim, beat, response, there=answers[-1] > 0)


@dataclass(frozen=True, slots=True)
class ServerView:
    """What the serving node sees of a call."""

    claim: bytes | None
    caller_beat: bytes | None
    cancel: bool
    over: bool

    @classmethod
    def of(cls, answers: list[Any]) -> ServerView:
        claim, beat, cancel, over = answers[-1]
        return cls(claim, beat, cancel is not None, over is not None)


class Transactions:
    """The transactions of one relay."""

    def __init__(self, names: Names, lifetimes: Lifetimes) -> None:
        self._names = names
        self._lifetimes = lifetimes

    def begin_life(self, endpoint: str, fresh: str) -> list[Command]:
        """Make the endpoint's life if it has none. The last answer is its life.

        `fresh` is of one attempt only: executed again after a loss, it would bring back the life of before.
        """
        life, stays = self._names.life(endpoint), _ms(self._lifetimes.endpoint)
        return [("SET", life, fresh, "NX", "PX", stays), ("PEXPIRE", life, stays), ("GET", life)]

    def enter(self, endpoint: str, call: str, request: bytes, waits: float) -> list[Command]:
        """Write a request that waits for `waits` seconds, and let it be found. The answer is an EnterView."""
        key, waiting = self._names.call(endpoint, call), self._names.waiting(endpoint)
        return [
            # What was written first stays: after the end of the call the claim is there, so a late one is never taken.
            ("HSETNX", key, REQUEST, request),
            *_at_least(key, waits + self._lifetimes.waiting_margin),
            ("RPUSH", waiting, call),
            ("PEXPIRE", waiting, _ms(self._lifetimes.endpoint)),
            ("GET", self._names.life(endpoint)),
            ("PUBLISH", self._names.pulse(endpoint), call),
        ]

    def look(self, endpoint: str, most: int) -> list[Command]:
        """Read the ids of the oldest requests that wait."""
        return [("LRANGE", self._names.waiting(endpoint), 0, most - 1)]

    def poll(self, endpoint: str, counts_for: float, *, first: bool) -> list[Command]:
        """Note that a worker polls. It counts for so many seconds. `first`: none polled at this node before.

        By itself: a transaction costs Redis two commands more, and this is what an idle endpoint costs.
        """
        polled = self._names.polled(endpoint)
        return [("SET", polled, "1", "PX", _ms(counts_for)), *([("PUBLISH", polled, "")] if first else [])]

    def polled(self, endpoint: str) -> list[Command]:
        """Whether a worker polls. The answer is None if none does."""
        return [("GET", self._names.polled(endpoint))]

    def drop(self, endpoint: str, ids: Iterable[bytes]) -> list[Command]:
        """Remove ids from the list that are none of ours."""
        return [("LREM", self._names.waiting(endpoint), 1, call) for call in ids]

    def claim(self, endpoint: str, call: str, token: str) -> list[Command]:
        """Collect a request, unless another token has. The answer is a ClaimView."""
        key = self._names.call(endpoint, call)
        return [
            ("HSETNX", key, CLAIM, token),
            ("PEXPIRE", key, self._collected),
            ("HMGET", key, CLAIM, REQUEST),
            ("LREM", self._names.waiting(endpoint), 1, call),
            ("GET", self._names.life(endpoint)),
        ]

    def caller_beat(self, endpoint: str, call: str, number: int, waits: float | None) -> list[Command]:
        """Beat as the caller, and look. The answer is a CallerView.

        `waits`: seconds that the request still waits for a node; None once it was collected.
        """
        key = self._names.call(endpoint, call)
        stays = self._lifetimes.response if waits is None else waits + self._lifetimes.waiting_margin
        return [("HSET", key, CALLER_BEAT, number), *_at_least(key, stays), *self._caller_looks(key)]

    def server_beat(self, endpoint: str, call: str, number: int) -> list[Command]:
        """Beat as the serving node, and look. The answer is a ServerView."""
        key = self._names.call(endpoint, call)
        return [("HSET", key, SERVER_BEAT, number), ("PEXPIRE", key, self._collected), _server_looks(key)]

    def answer(self, endpoint: str, call: str, response: bytes, pulse: tuple[str, bytes]) -> list[Command]:
        """Write a response, if it is the first, and pulse the caller's node. The answer is a ServerView.

        `pulse`: the caller's node and what to send it.
        """
        key = self._names.call(endpoint, call)
        node, content = pulse
        return [
            ("HSETNX", key, RESPONSE, response),
            ("PUBLISH", self._names.node(node), content),
            ("PEXPIRE", key, self._collected),
            _server_looks(key),
        ]

    def withdraw(self, endpoint: str, call: str, *, cancel: bool) -> list[Command]:
        """Take the request back unless a node has it; with `cancel`, ask that node to stop. The answer is a CallerView.

        Its claim is WITHDRAWN exactly if no node has the request, and none will.
        """
        key = self._names.call(endpoint, call)
        return [
            *([("HSET", key, CANCEL, 1)] if cancel else []),
            ("HSETNX", key, CLAIM, WITHDRAWN),
            ("PEXPIRE", key, self._collected),
            *self._caller_looks(key),
        ]

    def give_up(self, endpoint: str, call: str) -> list[Command]:
        """Note that the caller waits no longer, for a node that still has the request. The answer is a CallerView."""
        key = self._names.call(endpoint, call)
        return [
            ("HSET", key, OVER, 1),
            ("HSETNX", key, CLAIM, WITHDRAWN),
            ("PEXPIRE", key, self._collected),
            *self._caller_looks(key),
        ]

    def bury(self, endpoint: str, calls: Iterable[str]) -> list[Command]:
        """Empty calls that have ended. Their claims stay, so that a late command cannot bring them back to life."""
        keys = [self._names.call(endpoint, call) for call in calls]
        return [command for key in keys for command in self._bury(key)]

    def _bury(self, key: str) -> list[Command]:
        return [
            ("HSETNX", key, CLAIM, WITHDRAWN),
            ("HSET", key, OVER, 1),
            ("HDEL", key, REQUEST, RESPONSE),
            ("PEXPIRE", key, _ms(self._lifetimes.ended)),
        ]

    def pulse(self, node: str, content: bytes) -> list[Command]:
        """Pulse a node."""
        return [("PUBLISH", self._names.node(node), content)]

    @property
    def _collected(self) -> int:
        return _ms(self._lifetimes.response)

    @staticmethod
    def _caller_looks(key: str) -> list[Command]:
        return [("HMGET", key, CLAIM, SERVER_BEAT, RESPONSE), ("HSTRLEN", key, REQUEST)]


def _server_looks(key: str) -> Command:
    return ("HMGET", key, CLAIM, CALLER_BEAT, CANCEL, OVER)


def _at_least(key: str, seconds: float) -> list[Command]:
    """Have a key stay for so long, or for longer where it does already.

    A caller may not know yet that its request was collected, and then must not shorten what that has prolonged.
    """
    return [("PEXPIRE", key, _ms(seconds), only) for only in ("NX", "GT")]


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))
