"""Replays a day's departures as requests: in their true order, at their true distances in time, sped up.

Reads a schedule, calls the pool, returns what became of each request. It neither checks answers nor prints.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from osrdyne_client import errors, replies
from osrdyne_protocol import foreign_json, statuses

#: Status of a request that got no answer in time; every other status comes from the reply.
LOST = "lost"
#: Errors that every further request would meet too: the pool is not there, or refuses this user.
HOPELESS = (errors.Undeliverable, errors.AccessRefused, errors.NotFound)

#: Calls the pool: key and body to reply. Raises what `osrdyne_client.AsyncClient.call` raises.
Call = Callable[[str, bytes], Awaitable[replies.Reply]]


@dataclass(frozen=True, slots=True)
class Ask:
    """One request of the replay."""

    #: Seconds after the start of the replay at which it is sent.
    due: float
    #: Time of day that the request stands for.
    at: datetime
    key: str
    question: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one request."""

    ask: Ask
    #: When it was sent, in seconds of the event loop's clock.
    sent: float
    #: Seconds until the reply, or until the caller gave up.
    latency: float
    status: str
    #: The worker's answer, where it gave one.
    answer: dict[str, Any] | None = None
    #: The worker that answered, and how many answers it had given with this one.
    worker: str = ""
    answers: int = 0
    reason: str = ""

    @property
    def cold(self) -> bool:
        """Whether this request started its worker: it got the first answer that the worker gave."""
        return self.status == statuses.OK and self.answers == 1


@dataclass(slots=True)
class Progress:
    """How far the replay is; read by a display."""

    total: int = 0
    #: Time of day that the request sent last stands for.
    now: datetime | None = None
    sent: int = 0
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def outstanding(self) -> int:
        return self.sent - len(self.outcomes)


def plan(flights: Iterable[tuple[datetime, str, str]], speed: float) -> list[Ask]:
    """Return one request for each flight (scheduled departure, origin, destination), `speed` times faster.

    Flights are in the order of their departure. Each asks the worker of its destination a question of a passenger
    at the gate: in turn what the board shows, how late this flight will be, how late flights are by hour.
    """
    asks: list[Ask] = []
    first: datetime | None = None
    for at, origin, destination in flights:
        first = first or at
        moment = at.isoformat(timespec="minutes")
        questions: tuple[dict[str, Any], ...] = (
            {"question": "board", "at": moment},
            {"question": "likely-delay", "at": moment, "origin": origin},
            {"question": "delays", "origin": origin, "month": at.month, "percentiles": [10, 50, 90]},
        )
        due = (at - first).total_seconds() / speed
        asks.append(Ask(due, at, destination, questions[len(asks) % len(questions)]))
    return asks


async def replay(call: Call, asks: list[Ask], progress: Progress) -> list[Outcome]:
    """Send every request when it is due, however many are outstanding; return when all have ended.

    Raises the first error that is one of `HOPELESS`.
    """
    progress.total = len(asks)
    clock = asyncio.get_running_loop().time
    start = clock()
    try:
        async with asyncio.TaskGroup() as group:
            for ask in asks:
                await asyncio.sleep(start + ask.due - clock())
                progress.now, progress.sent = ask.at, progress.sent + 1
                group.create_task(_one(call, ask, progress))
    except ExceptionGroup as together:
        hopeless = together.subgroup(HOPELESS)
        raise hopeless.exceptions[0] if hopeless else together from None
    return progress.outcomes


async def _one(call: Call, ask: Ask, progress: Progress) -> None:
    clock = asyncio.get_running_loop().time
    sent = clock()

    def ended(status: str, **what: Any) -> None:
        progress.outcomes.append(Outcome(ask, sent, clock() - sent, status, **what))

    try:
        reply = await call(ask.key, json.dumps(ask.question).encode())
    except HOPELESS:
        raise
    except errors.RemoteError as error:
        said = error.body[:200].decode(errors="replace")
        ended(error.status, reason=f"{error.status}: {error.reason or said}")
    except errors.OsrdyneError as error:
        ended(LOST, reason=f"{type(error).__name__}: {error}")
    else:
        ended(statuses.OK, **_read(reply.body))


def _read(body: bytes) -> dict[str, Any]:
    """Return the fields of an `Outcome` that are in a reply's body."""
    try:
        answer = foreign_json.read(body)
        served_by = answer.pop("served_by")
        return {"answer": answer, "worker": served_by["worker"], "answers": served_by["answers"]}
    except (ValueError, TypeError, KeyError, AttributeError):
        return {"reason": f"not an answer of this pool: {body[:100]!r}"}
