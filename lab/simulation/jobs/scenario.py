"""What a seed decides: which jobs are registered, what their handlers do, and what fails. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum

from osrdyne_jobs import JobType
from simulation.jobs.scheduler import Dangers

ATTEMPTS = 3
#: Jobs in turn, and jobs of which one run does all that wait.
PLAIN = JobType("plain", payload=dict[str, int], max_attempts=ATTEMPTS)
MERGED = JobType("merged", payload=dict[str, int], max_attempts=ATTEMPTS, coalesce=True)
TYPES = (PLAIN, MERGED)
#: Seconds: of the load and its faults, and then until all must have ended.
LOAD_SECONDS, REST_SECONDS = 60.0, 2000.0


class Kind(Enum):
    """What fails in a run."""

    CALM = "calm"
    KILLS = "kills"
    PAUSES = "pauses"
    BROKER = "broker away"
    DATABASE = "database away"
    STORM = "storm"


class HandlerAction(Enum):
    """What the handler of a job does in the end."""

    RETURN = "return"
    #: Raises in its first attempts.
    RAISE = "raise"
    #: Goes on until it is cancelled.
    UNTIL_CANCELLED = "until cancelled"
    #: Never returns in its first attempt. The worker's driver kills it in the end.
    HANG = "hang"


@dataclass(frozen=True, slots=True)
class Plan:
    """One job."""

    number: int
    at: float
    client: int
    type: str
    resource: str
    do: HandlerAction
    #: Seconds of the handler's work.
    work: float
    #: Attempts that raise.
    fails: int
    #: Whether its handler looks whether it was cancelled.
    listens: bool
    #: It is registered in a transaction of the client's own.
    outbox: bool
    #: Seconds after its registration at which a person cancels it.
    cancel_after: float | None
    #: A person has it done again when it is parked.
    redone: bool


@dataclass(frozen=True, slots=True)
class Casts:
    """What becomes of a cast, while faults last: how often each happens."""

    lost: float = 0.0
    doubled: float = 0.0
    late: float = 0.0
    refused: float = 0.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """One run."""

    seed: int
    kind: Kind
    jobs: tuple[Plan, ...]
    dangers: Dangers
    casts: Casts
    #: (begin, end) of what is away, in seconds from the begin.
    broker_away: tuple[tuple[float, float], ...]
    database_away: tuple[tuple[float, float], ...]
    #: How often the connection to the database breaks in a commit, while faults last. Half of these are committed.
    commits_cut: float
    #: Workers get SIGTERM at these moments.
    stops: tuple[float, ...]
    #: (moment, seconds): workers that have a run stand still for longer than their lease.
    naps: tuple[tuple[float, float], ...]
    #: Workers of a group, threads of a worker, redo processes.
    workers: int
    threads: int
    redos: int
    #: Seconds for which a worker holds a request.
    held: float | None
    #: `RedoSettings.batch` and `most`: jobs that redo reads at once, and in one scan.
    batch: int
    most: int


def scenario(seed: int) -> Scenario:
    """Return what a seed stands for."""
    chance = random.Random(f"scenario of jobs {seed}")
    kind = chance.choices(list(Kind), weights=(1, 2, 2, 1, 1, 3))[0]
    few = chance.random() < 0.3
    kills = kind in {Kind.KILLS, Kind.STORM}
    pauses = kind in {Kind.PAUSES, Kind.STORM}
    return Scenario(
        seed=seed,
        kind=kind,
        jobs=_jobs(chance, kind),
        dangers=Dangers(
            kill=chance.uniform(0.0005, 0.006) if kills else 0.0,
            pause=chance.uniform(0.0005, 0.004) if pauses else 0.0,
            pauses=(1.0, chance.choice((10.0, 45.0, 90.0))),
        ),
        casts=_casts(chance, kind),
        broker_away=_away(chance, kind in {Kind.BROKER, Kind.STORM}),
        database_away=_away(chance, kind in {Kind.DATABASE, Kind.STORM}),
        commits_cut=chance.uniform(0.005, 0.06) if kind in {Kind.DATABASE, Kind.STORM} else 0.0,
        stops=tuple(chance.uniform(0, LOAD_SECONDS) for _ in range(chance.randint(0, 0 if kind is Kind.CALM else 3))),
        naps=tuple(
            (chance.uniform(0, LOAD_SECONDS), chance.uniform(20, 90))
            for _ in range(chance.randint(1, 4) if pauses else 0)
        ),
        workers=chance.choice((1, 1, 2)),
        threads=chance.choice((1, 1, 2)),
        redos=chance.choice((1, 2)),
        held=chance.choice((None, None, 8.0)),
        batch=chance.randint(1, 3) if few else 100,
        most=chance.randint(2, 4) if few else 1000,
    )


def _jobs(chance: random.Random, kind: Kind) -> tuple[Plan, ...]:
    resources = [f"r{n}" for n in range(chance.randint(1, 3))]
    merged = chance.choice((0.0, 0.5, 1.0))
    last = chance.choice((5.0, 25.0, 50.0))
    moments = sorted(chance.uniform(0, last) for _ in range(chance.randint(3, 14)))
    return tuple(_job(chance, kind, number, at, chance.choice(resources), merged) for number, at in enumerate(moments))


def _job(chance: random.Random, kind: Kind, number: int, at: float, resource: str, merged: float) -> Plan:
    weights = (70, 20, 4, 6 if kind is not Kind.CALM else 0)
    do = chance.choices(list(HandlerAction), weights=weights)[0]
    merges = chance.random() < merged
    if merges and do is HandlerAction.UNTIL_CANCELLED:
        do = HandlerAction.RETURN  # its run would do other jobs, too, which are not cancelled
    cancelled = do is HandlerAction.UNTIL_CANCELLED or chance.random() < 0.1
    return Plan(
        number=number,
        at=at,
        client=chance.randint(0, 1),
        type=MERGED.name if merges else PLAIN.name,
        resource=resource,
        do=do,
        work=chance.choice((chance.uniform(0, 1), chance.uniform(0, 8), chance.uniform(0, 8), chance.uniform(30, 60))),
        fails=chance.choice((1, 1, 2, ATTEMPTS)) if do is HandlerAction.RAISE else 0,
        listens=do is HandlerAction.UNTIL_CANCELLED or chance.random() < 0.7,
        outbox=chance.random() < 0.2,
        cancel_after=chance.uniform(0, 30) if cancelled else None,
        redone=chance.random() < 0.5,
    )


def _casts(chance: random.Random, kind: Kind) -> Casts:
    if kind not in {Kind.BROKER, Kind.STORM}:
        return Casts()
    return Casts(*(chance.choice((0.0, 0.1, 0.4)) for _ in range(4)))


def _away(chance: random.Random, happens: bool) -> tuple[tuple[float, float], ...]:
    begins = [chance.uniform(0, LOAD_SECONDS - 5) for _ in range(chance.randint(1, 2) if happens else 0)]
    return tuple((begin, min(LOAD_SECONDS, begin + chance.choice((1.0, 10.0, 45.0)))) for begin in begins)
