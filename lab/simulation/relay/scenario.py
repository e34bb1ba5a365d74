"""What a seed decides: the calls, what their workers do, and what goes wrong."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from enum import Enum

#: Seconds within which calls begin and things go wrong, and for which the run goes on afterwards.
LOAD_SECONDS, REST_SECONDS = 150.0, 500.0
ENDPOINTS = ("north", "south")
CALLERS, SERVERS = 2, 3


class Kind(Enum):
    """What goes wrong in a run."""

    QUIET = "nothing goes wrong"
    DEAF = "all pulses are lost"
    FLAKY = "answers and commands are lost, or come late"
    OUTAGE = "Redis is away for a while"
    LOSS = "Redis loses its data"
    CRASHES = "processes die or stand still"
    ALL = "everything at once"


class Away(Enum):
    """How Redis is away."""

    STILL = "it stands still, and then does what it received"
    CUT = "connections break, and commands may have been executed"
    KILLED = "it is killed, and comes back without data"


@dataclass(frozen=True, slots=True)
class CallPlan:
    """One call."""

    number: int
    at: float
    caller: int
    endpoint: str
    #: Seconds that its worker works.
    takes: float
    pickup_timeout: float
    timeout: float | None
    #: Seconds after its begin when it is cancelled, and whether by cancelling the task.
    cancel_after: float | None
    cancel_task: bool
    #: Whether the worker fails, and whether it goes on when its work is no longer wanted.
    fails: bool
    stubborn: bool


@dataclass(frozen=True, slots=True)
class Trouble:
    """A process dies or stands still at a time."""

    at: float
    #: `caller 0` and the like.
    who: str
    #: Seconds for which it stands still; None when it dies.
    still: float | None


@dataclass(frozen=True, slots=True)
class Scenario:
    """One run."""

    seed: int
    kind: Kind
    calls: tuple[CallPlan, ...]
    #: Of a pulse to be lost.
    pulses_lost: float
    #: Of a transaction: its answer is lost, it is lost itself, it is executed late.
    answer_lost: float = 0.0
    command_lost: float = 0.0
    late: float = 0.0
    #: Of a process to die at a transaction, before or after it is executed.
    dies: float = 0.0
    away: tuple[tuple[float, float, Away], ...] = ()
    flushes: tuple[float, ...] = ()
    troubles: tuple[Trouble, ...] = field(default=())

    def away_at(self, now: float) -> Away | None:
        """Return how Redis is away at a time; None when it is there."""
        return next((how for begin, end, how in self.away if begin <= now < end), None)

    @property
    def outage(self) -> float:
        """Seconds of the longest outage."""
        return max((end - begin for begin, end, _ in self.away), default=0.0)


def scenario(seed: int) -> Scenario:
    """Return what a seed decides."""
    chance = random.Random(f"relay {seed}")
    kind = list(Kind)[seed % len(Kind)]
    calls = tuple(_call(chance, number) for number in range(chance.randint(6, 16)))
    has = {kind} if kind is not Kind.ALL else {Kind.FLAKY, Kind.OUTAGE, Kind.LOSS, Kind.CRASHES}
    flaky, crashes = Kind.FLAKY in has, Kind.CRASHES in has
    return Scenario(
        seed,
        kind,
        calls,
        pulses_lost=1.0 if kind is Kind.DEAF else 0.0 if kind is Kind.QUIET else chance.choice((0.0, 0.2, 1.0)),
        answer_lost=0.05 if flaky else 0.0,
        command_lost=0.05 if flaky else 0.0,
        late=0.03 if flaky else 0.0,
        dies=chance.choice((0.0, 0.02)) if crashes else 0.0,
        away=_outages(chance) if Kind.OUTAGE in has else (),
        flushes=tuple(sorted(chance.uniform(5, LOAD_SECONDS) for _ in range(2))) if Kind.LOSS in has else (),
        troubles=tuple(_trouble(chance) for _ in range(4)) if crashes else (),
    )


def _call(chance: random.Random, number: int) -> CallPlan:
    return CallPlan(
        number,
        at=chance.uniform(0, LOAD_SECONDS),
        caller=chance.randrange(CALLERS),
        endpoint=chance.choice(ENDPOINTS),
        takes=chance.choice((0.0, chance.uniform(0, 5), chance.uniform(0, 30), chance.uniform(60, 200))),
        pickup_timeout=chance.choice((10.0, 60.0, 300.0)),
        timeout=chance.choice((None, None, None, chance.uniform(1, 100))),
        cancel_after=chance.choice((None, None, None, chance.uniform(0, 60), 0.0)),
        cancel_task=chance.random() < 0.3,
        fails=chance.random() < 0.1,
        stubborn=chance.random() < 0.3,
    )


def _outages(chance: random.Random) -> tuple[tuple[float, float, Away], ...]:
    begin, found = 0.0, []
    for _ in range(2):
        begin += chance.uniform(5, 60)
        lasts = chance.choice((2.0, 20.0, 20.0, chance.uniform(0, 60)))
        found.append((begin, begin + lasts, chance.choice(list(Away))))
        begin += lasts
    return tuple(found)


def _trouble(chance: random.Random) -> Trouble:
    who = chance.choice([f"caller {n}" for n in range(CALLERS)] + [f"server {n}" for n in range(SERVERS)])
    still = chance.choice((None, 10.0, 70.0, 120.0))
    return Trouble(chance.uniform(0, LOAD_SECONDS), who, still)
