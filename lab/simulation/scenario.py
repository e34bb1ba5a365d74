"""What happens in a run, made from its seed: keys and their workers, requests, faults. Pure.

Kinds of run: `calm` (nothing fails), `bad keys` (some keys' workers, drivers or requests fail, a person meddles with
queues, and nothing else), `queues lost` (the broker is killed once and loses queues, and nothing else), `events away`
(events do not arrive, and nothing else fails), `worker stays` (one worker's process goes on without consuming, and
nothing else fails), `suspects` (requests end workers of the worker library, and nothing else fails) and `storm`
(everything may fail). The calmer a run, the more is asked of it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from osrdyne_pool.settings import PoolSettings
from osrdyne_protocol.headers import X_DEADLINE
from simulation.virtual_time import EPOCH_MS
from tests.hard_keys import KEYS


class Kind(Enum):
    """How much may fail in a run."""

    CALM = "calm"
    BAD_KEYS = "bad keys"
    STORM = "storm"
    LOST = "queues lost"
    EVENTS = "events away"
    STAYS = "worker stays"
    SUSPECTS = "suspects"


#: What a worker does with a request.
ANSWER, CRASH, HANG, REJECT, REQUEUE, REQUEUE_ONCE = "answer", "crash", "hang", "reject", "requeue", "requeue once"
#: How a worker group starts; of a taken key it cannot, because its queue's name is that of a foreign queue.
STARTS, REFUSED, SLOW, DEAF, EXITS, TAKEN = "starts", "refused", "slow", "deaf", "exits", "taken"
#: Starts of which the engine says each time that there is no worker.
NEVER_STARTS = (REFUSED, EXITS)
#: Where a client reads its replies.
DIRECT, QUEUE, NOWHERE, IN_POOL = "direct", "queue", "nowhere", "in the pool"
#: Seconds after the broker's return within which a key whose queue was lost answers again.
MOST_RETURN_SECONDS = 60.0
#: Seconds that the broker is down at least and at most when it is killed.
DOWN_SECONDS = (0.3, 5.0)
#: New keys that may be woken at once where a run does not test that budget: more than any run has.
MANY_NEW_KEYS = 1000
#: Age in seconds up to which a broker that is killed loses a request queue.
YOUNG_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class KeyPlan:
    """One key and how its workers behave."""

    key: str
    start: str = STARTS
    #: Seconds from the start of a worker to its first event.
    boot: float = 0.3
    #: A broker that loses queues never loses this key's.
    kept: bool = False

    @property
    def healthy(self) -> bool:
        return self.start == STARTS


@dataclass(frozen=True, slots=True)
class RequestPlan:
    """One request. Times in seconds."""

    name: str
    at: float
    routing_key: str | bytes
    do: str = ANSWER
    work: float = 0.05
    reply: str = QUEUE
    #: Of the message, in milliseconds.
    expiration: int | None = None
    headers: tuple[tuple[str, Any], ...] = ()
    client: int = 0

    @property
    def plain(self) -> bool:
        """Nothing about this request itself keeps a worker from answering it."""
        return self.do == ANSWER and self.reply in (DIRECT, QUEUE) and not self.may_expire

    @property
    def may_expire(self) -> bool:
        """It carries a deadline of its own, after which its client does not wait for it."""
        return self.expiration is not None or any(name == X_DEADLINE for name, _ in self.headers)


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong at `at`, and is over at `until`, in seconds. `what` names it; see `faults`."""

    what: str
    at: float
    until: float
    #: Chooses among what the fault may hit, such as which daemon, or which of its next broker operations.
    number: int = 0
    key: str = ""
    #: Seconds by which a wall clock jumps.
    jump: float = 0.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything about one run that its seed decides."""

    seed: int
    kind: Kind
    version: str
    pool: PoolSettings
    keys: tuple[KeyPlan, ...]
    requests: tuple[RequestPlan, ...]
    faults: tuple[Fault, ...]
    #: When a second daemon starts, in seconds; None without one.
    standby_at: float | None = None
    #: New keys that a client may wake at once; beyond them it has to wait for a minute.
    new_keys: int = MANY_NEW_KEYS
    #: When the load and all faults are over, in seconds.
    end: float = 0.0
    #: Seconds after that within which what they delayed has to come to an end.
    settle: float = 700.0
    clients: int = 2
    #: Of a worker of the worker library: requests in hand, and whether all of them are begun at once.
    prefetch: int = 1
    all_begun: bool = False
    #: The requests, by name.
    by_name: dict[str, RequestPlan] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {request.name: request for request in self.requests})


_FAULTS = {
    # what: (weight, shortest and longest in seconds)
    "daemon killed": (10, 0.0, 8.0),
    "daemon cut": (8, 0.0, 0.0),
    "daemon half open": (3, 0.0, 0.0),
    "client cut": (3, 0.0, 0.0),
    "worker cut": (4, 0.0, 0.0),
    "worker half open": (2, 0.0, 0.0),
    "worker killed": (3, 0.0, 0.0),
    "worker stays": (4, 0.0, 0.0),
    "broker down": (3, 0.5, 12.0),
    "alarm": (2, 1.0, 15.0),
    "confirms late": (3, 2.0, 20.0),
    "confirms never": (2, 1.0, 10.0),
    "publishes refused": (2, 1.0, 10.0),
    "management away": (3, 1.0, 30.0),
    "management hangs": (2, 1.0, 30.0),
    "policy removed": (3, 0.5, 10.0),
    "queue deleted": (3, 0.0, 0.0),
    "queue unbound": (2, 0.0, 0.0),
    "static queue deleted": (5, 1.0, 20.0),
    "poison deleted": (4, 1.0, 30.0),
    "stray activity": (2, 0.0, 0.0),
    "activity lost": (4, 5.0, 60.0),
    "activity exchange deleted": (2, 1.0, 30.0),
    "activity revoked": (2, 1.0, 30.0),
    "lock deleted": (2, 0.0, 0.0),
    "daemon revoked": (2, 0.5, 10.0),
    "worker revoked": (2, 0.5, 10.0),
    "driver refuses": (3, 1.0, 15.0),
    "driver blind": (2, 1.0, 15.0),
    "clock jumps": (2, 0.0, 0.0),
    "queues lost": (4, 1.0, 15.0),
    "queues uncounted": (2, 5.0, 40.0),
}


#: What a person may do in a run of bad keys: it disturbs no other key.
_MEDDLING = ("queue deleted", "queue unbound", "poison deleted", *(["stray activity", "activity lost"] * 2))


#: One of so many seeds is a run of suspects, by its remainder. No random number decides it: a further one would change
#: the runs of all other seeds.
_SUSPECTS_EVERY, _SUSPECTS_AT = 20, 7


def scenario(seed: int) -> Scenario:
    """Return the run of a seed."""
    rng = random.Random(f"scenario {seed}")
    if seed % _SUSPECTS_EVERY == _SUSPECTS_AT:
        return _suspects(seed, rng)
    kinds = (Kind.CALM, Kind.BAD_KEYS, Kind.STORM, Kind.LOST, Kind.EVENTS, Kind.STAYS)
    kind = rng.choices(kinds, (15, 25, 56, 12, 8, 4))[0]
    if kind is Kind.LOST:
        return _lost(seed, rng)
    if kind in (Kind.EVENTS, Kind.STAYS):
        return _one_thing_fails(seed, rng, kind)
    end = rng.uniform(20.0, 70.0)
    keys = _keys(rng, kind)
    requests = _requests(rng, kind, keys, end)
    faults = (*_faults(rng, kind, keys, end), *_stands_still(seed, kind, requests, end))
    # Without events, only the broker's own counts say that a key is in use: delays are as short as they can be.
    events_lost_at = next((fault.at for fault in faults if fault.what == "activity lost"), None)
    hasty = events_lost_at is not None
    if events_lost_at is not None:
        requests = (*requests, *_late_in_the_life_of_a_key(rng, len(requests), events_lost_at, keys))
    pool = PoolSettings(
        "core",
        unbind_delay=4.0 if hasty else rng.choice((4.0, 10.0, 25.0)),
        stop_delay=2.0 if hasty else rng.choice((2.0, 5.0, 12.0)),
        message_ttl=90.0,
        orphan_ttl=rng.choice((20.0, 40.0)),
        delivery_limit=3,
        consumer_timeout=25.0,
        poison_max_length=2 if kind is Kind.STORM and rng.random() < 0.1 else 1000,
    )
    return Scenario(
        seed,
        kind,
        rng.choice(("4.0", "4.3")),
        pool,
        keys,
        tuple(sorted(requests, key=lambda request: request.at)),
        faults,
        standby_at=rng.uniform(0.0, end) if kind is Kind.STORM and rng.random() < 0.3 else None,
        # Again without a random number.
        new_keys=1 if kind is Kind.STORM and seed % 10 == 0 else MANY_NEW_KEYS,
        end=max(end, *(request.at + 0.5 for request in requests)),
    )


def _keys(rng: random.Random, kind: Kind) -> tuple[KeyPlan, ...]:
    chosen = rng.sample(KEYS, rng.randint(1, 4))
    plans = []
    for number, key in enumerate(chosen):
        start = STARTS
        # The first key is always healthy: others must not delay it.
        if number and kind is not Kind.CALM and rng.random() < 0.45:
            start = rng.choice((REFUSED, SLOW, DEAF, EXITS, TAKEN))
        plans.append(KeyPlan(key, start, rng.uniform(0.05, 1.0)))
    return tuple(plans)


_WHAT_WORKERS_DO = ((ANSWER, CRASH, HANG, REJECT, REQUEUE, REQUEUE_ONCE), (12, 2, 1, 2, 1, 2))


def _requests(rng: random.Random, kind: Kind, keys: tuple[KeyPlan, ...], end: float) -> tuple[RequestPlan, ...]:
    result = []
    for number in range(rng.randint(4, 16)):
        plan = rng.choice(keys)
        # Only keys that may fail get requests that make their workers fail.
        mild = kind is Kind.CALM or plan is keys[0]
        do = ANSWER if mild else rng.choices(*_WHAT_WORKERS_DO)[0]
        # Half of the requests come close together: cold starts and bursts.
        at = rng.uniform(0.0, end) if rng.random() < 0.5 else rng.choice((1.0, end / 2)) + rng.uniform(0.0, 0.2)
        result.append(
            RequestPlan(
                f"r{number}",
                at,
                plan.key,
                do,
                rng.choice((0.01, 0.1, 1.0)) if mild else rng.choice((0.01, 0.5, 6.0)),
                rng.choices((QUEUE, DIRECT, NOWHERE), (5, 3, 1))[0],
                rng.choice((50, 2000, 15000)) if rng.random() < 0.1 else None,
                _headers(rng, at),
                rng.randint(0, 1),
            )
        )
    if kind is not Kind.CALM and rng.random() < (0.4 if kind is Kind.STORM else 0.8):
        # It may come right before a burst, which it must not delay.
        result.append(_odd(rng, len(result), rng.choice((rng.uniform(0.0, end), 0.95, end / 2 - 0.05)), keys))
    return tuple(sorted(result, key=lambda request: request.at))


def _late_in_the_life_of_a_key(
    rng: random.Random, number: int, at: float, keys: tuple[KeyPlan, ...]
) -> tuple[RequestPlan, ...]:
    """A request that wakes a key, and a long one right before the key would be unbound."""
    key = rng.choice(keys).key
    return (
        RequestPlan(f"r{number}", at + 1.0, key, work=0.01),
        RequestPlan(f"r{number + 1}", at + 1.0 + rng.uniform(2.0, 4.0), key, work=6.0),
    )


def _headers(rng: random.Random, at: float) -> tuple[tuple[str, Any], ...]:
    """Headers of a request: most have none, some a deadline."""
    return rng.choices(
        ((), (("x-rpc-path", "p"),), ((X_DEADLINE, EPOCH_MS + int(1000 * at) + rng.choice((30, 2000, 15000))),)),
        (8, 1, 1),
    )[0]


def _odd(rng: random.Random, number: int, at: float, keys: tuple[KeyPlan, ...]) -> RequestPlan:
    """A request that cannot be served."""
    key = rng.choice(keys).key
    name = f"r{number}"
    return rng.choice(
        (
            RequestPlan(name, at, "nul\0", reply=rng.choice((QUEUE, NOWHERE))),
            RequestPlan(name, at, b"\xff\xfe"),
            RequestPlan(name, at, key, reply=IN_POOL),
            RequestPlan(name, at, "with-cc", headers=(("CC", ("other",)),)),
            RequestPlan(name, at, "hopeless", headers=(("x-osrdyne-hops", 12),)),
            # It has come back so often that its next forward waits long.
            *[RequestPlan(name, at, "tired", headers=(("x-osrdyne-hops", 11),))] * 4,
        )
    )


def _faults(rng: random.Random, kind: Kind, keys: tuple[KeyPlan, ...], end: float) -> tuple[Fault, ...]:
    names = list(_FAULTS)
    chosen: list[str] = []
    if kind is Kind.STORM:
        chosen = rng.choices(names, [_FAULTS[name][0] for name in names], k=rng.randint(1, 5))
    elif kind is Kind.BAD_KEYS:
        chosen = rng.choices(_MEDDLING, k=rng.choice((0, 0, 1, 2)))
    result = []
    for what in chosen:
        _, shortest, longest = _FAULTS[what]
        at = rng.uniform(0.5, end)
        fault = Fault(
            what,
            at,
            end if kind is Kind.BAD_KEYS and longest else min(end, at + rng.uniform(shortest, longest)),
            rng.randint(0, 60),
            rng.choice(keys).key,
            rng.choice((-3600.0, -5.0, 5.0, 3600.0)),
        )
        result.append(fault)
    return tuple(sorted(result, key=lambda fault: fault.at))


def _stands_still(seed: int, kind: Kind, requests: tuple[RequestPlan, ...], end: float) -> tuple[Fault, ...]:
    """A daemon's process stands still in a fifth of the storms, half of the time right after a request was made."""
    rng = random.Random(f"stands still {seed}")
    if kind is not Kind.STORM or rng.random() > 0.2:
        return ()
    at = rng.choice(requests).at + rng.uniform(0.0, 0.05) if rng.random() < 0.5 else rng.uniform(0.5, end)
    seconds = rng.uniform(*rng.choice(((0.02, 3.0), (3.0, 9.0), (9.0, 40.0))))
    return (Fault("daemon stands still", at, max(at, min(end, at + seconds)), rng.randint(0, 60)),)


def _lost(seed: int, rng: random.Random) -> Scenario:
    """The broker is killed right after queues of some keys were declared, and loses those; nothing else fails.

    Of the keys that it never loses, with a client of their own, the first is called all the time, and each other once
    after the kill: some of these are orphans while the daemon deals with what was lost. The keys whose queues may be
    lost are not called before the fault, and once at the end, when they must have come back.
    """
    chosen = rng.sample(KEYS, rng.randint(7, 9))
    keys = tuple(KeyPlan(key, boot=rng.uniform(0.05, 1.0), kept=number < 6) for number, key in enumerate(chosen))
    killed_at = rng.uniform(4.0, 12.0)
    end = killed_at + MOST_RETURN_SECONDS + 15.0
    wanted = [(killed_at + rng.uniform(2.0, 30.0), "nul\0", ANSWER, 0)]
    moment = 1.0
    while moment < end:
        wanted.append((moment, keys[0].key, ANSWER if rng.random() < 0.8 else REJECT, 0))
        moment += rng.uniform(2.0, 9.0)
    for plan in keys[1:]:
        if plan.kept:
            wanted.append((killed_at + rng.uniform(1.0, 20.0), plan.key, ANSWER, 0))
            continue
        moments = [killed_at + rng.uniform(0.0, 0.3) for _ in range(rng.randint(1, 3))]
        moments += [killed_at + rng.uniform(*span) for span in ((0.5, 8.0), (8.0, 25.0), (25.0, 50.0))]
        moments.append(end + rng.uniform(0.0, 3.0))
        # A publish to a lost queue holds up its client, too, and only another one's can be an orphan meanwhile.
        wanted += [(moment, plan.key, ANSWER, rng.randint(1, 3)) for moment in moments]
    requests = tuple(
        RequestPlan(f"r{number}", at, key, do, rng.choice((0.01, 0.1, 1.0)), rng.choice((QUEUE, DIRECT)), client=client)
        for number, (at, key, do, client) in enumerate(sorted(wanted))
    )
    faults = [Fault("queues lost", killed_at, killed_at + 10.0, rng.randint(0, 60))]
    if rng.random() < 0.5:
        # A queue without counts is not lost just because of that.
        faults.append(Fault("queues uncounted", killed_at, killed_at + 40.0))
    return Scenario(
        seed,
        Kind.LOST,
        rng.choice(("4.0", "4.3")),
        PoolSettings(
            "core",
            unbind_delay=4.0,
            stop_delay=2.0,
            message_ttl=90.0,
            orphan_ttl=rng.choice((20.0, 40.0)),
            delivery_limit=3,
            consumer_timeout=25.0,
            poison_max_length=1000,
        ),
        keys,
        requests,
        tuple(faults),
        end=end + 3.5,
        clients=4,
    )


#: Seconds after which a key whose worker stays without consuming is served as before: the grace of its group, counts
#: that are late, two of their intervals, and a start.
BACK_SECONDS = 15.0 + 7.5 + 2 * 5.0 + 5.0
#: What can keep events from the daemon while everything else works.
EVENT_FAULTS = ("activity lost", "activity queue deleted", "activity exchange deleted", "activity revoked")


def _one_thing_fails(seed: int, rng: random.Random, kind: Kind) -> Scenario:
    """One key is called all the time, another works for long, and one thing fails.

    Either no event arrives for more than a minute; workers then have a connection of their own for events, as those of
    the worker library do. Or the worker of the busy key stays without consuming.
    """
    busy, other = (KeyPlan(key, boot=rng.uniform(0.05, 1.0)) for key in rng.sample(KEYS, 2))
    fails_at = rng.uniform(3.0, 12.0)
    end = fails_at + rng.uniform(80.0, 100.0)
    wanted = [(1.0, other.key, 0.1), (fails_at + rng.uniform(0.0, 5.0), other.key, rng.uniform(30.0, 50.0))]
    moment = 1.0
    while moment < end:
        wanted.append((moment, busy.key, rng.choice((0.01, 0.1, 1.0))))
        moment += rng.uniform(0.5, 8.0)
    requests = tuple(
        RequestPlan(f"r{number}", at, key, ANSWER, work, rng.choice((QUEUE, DIRECT)))
        for number, (at, key, work) in enumerate(sorted(wanted))
    )
    fault = Fault("worker stays", fails_at, fails_at, rng.randint(0, 60), busy.key)
    if kind is Kind.EVENTS:
        fault = Fault(rng.choice(EVENT_FAULTS), fails_at, end)
    return Scenario(
        seed,
        kind,
        rng.choice(("4.0", "4.3")),
        PoolSettings(
            "core",
            unbind_delay=50.0,
            stop_delay=rng.choice((2.0, 5.0)),
            message_ttl=90.0,
            orphan_ttl=40.0,
            delivery_limit=3,
            consumer_timeout=120.0,
            poison_max_length=1000,
        ),
        (busy, other),
        requests,
        (fault,),
        end=end,
    )


def _suspects(seed: int, rng: random.Random) -> Scenario:
    """One key has a worker of the worker library; one or two requests end it each time, amid many that do not."""
    key = KeyPlan(rng.choice(KEYS), boot=rng.uniform(0.05, 1.0))
    moment, work = rng.uniform(1.0, 3.0), rng.choice((0.01, 0.1))
    bad = rng.choice((1, 1, 2))
    moments = [moment + rng.uniform(0.0, 0.01) for _ in range(rng.randint(5, 30))]
    moments += [moment + rng.uniform(0.0, 20.0) for _ in range(rng.randint(0, 10))]
    culprits = set(rng.sample(range(len(moments)), bad))
    requests = tuple(
        RequestPlan(
            f"r{number}",
            moment,
            key.key,
            CRASH if number in culprits else ANSWER,
            0.06 if number in culprits else work,
            rng.choice((QUEUE, DIRECT)),
        )
        for number, moment in enumerate(moments)
    )
    return Scenario(
        seed,
        Kind.SUSPECTS,
        rng.choice(("4.0", "4.3")),
        PoolSettings(
            "core",
            start_failures=3,
            unbind_delay=25.0,
            stop_delay=5.0,
            message_ttl=90.0,
            orphan_ttl=40.0,
            delivery_limit=5,
            consumer_timeout=rng.choice((25.0, 1800.0)),
            poison_max_length=1000,
        ),
        (key,),
        tuple(sorted(requests, key=lambda request: request.at)),
        (),
        end=max(moments) + 5.0,
        prefetch=rng.choice((1, 2, 8, 8)),
        all_begun=rng.random() < 0.4,
    )
