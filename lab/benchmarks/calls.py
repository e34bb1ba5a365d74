"""Calls a second: our client and worker next to bare pika and next to aio-pika's RPC pattern, 64 calls at once.

All pairs are up at the same time and take turns, so that each ratio is of two turns next to each other. Also what
activity events and a prefetch of 1 cost, and how far any worker could come at a prefetch of 1.

All pairs send the same events. Our library gathers those of a moment; the peers send each when it happens, as who
writes a worker by hand would, but for one that gathers them, too.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import psutil

from benchmarks import rig as rigs
from benchmarks.ratios import Row, Target, compared
from benchmarks.rig import Rig, Side
from testbed.pool import Pool

#: Seconds for which a pair makes calls before it is measured, so that connections, queues and caches are warm.
WARM_UP_SECONDS = 0.3
PREFETCHES = (64, 1)
BARE = "bare pika"
AIO_PIKA = "aio-pika RPC"

#: Name of a pair -> what starts it: client, worker.
Pairs = dict[str, Callable[[Pool, str, int], tuple[Side, Side]]]


def _ours(pool: Pool, key: str, prefetch: int, *, threads: int, events: bool = True) -> tuple[Side, Side]:
    worker = rigs.our_worker(pool, key, prefetch=prefetch, threads=threads, events=events)
    return worker, rigs.client("our_client", pool, key)


def _bare(
    pool: Pool,
    key: str,
    prefetch: int,
    *,
    events: str = "single",
    acknowledges: bool = False,
    confirmed: bool = True,
) -> tuple[Side, Side]:
    worker = rigs.bare_worker(pool, key, prefetch=prefetch, events=events, confirmed=confirmed)
    return worker, rigs.client("bare_pika_client", pool, key, acknowledges=acknowledges)


def _aio_pika(pool: Pool, key: str, prefetch: int, *, events: bool) -> tuple[Side, Side]:
    worker = Side(
        "aio_pika_worker",
        rigs.administrator(pool),
        key=key,
        prefetch=prefetch,
        events=events,
        exchange=pool.names.activity_exchange,
    )
    worker.wait_ready()
    return worker, rigs.client("aio_pika_client", pool, key)


PAIRS: Pairs = {
    "ours": partial(_ours, threads=0),
    "ours-mute": partial(_ours, threads=0, events=False),
    "thread": partial(_ours, threads=1),
    "bare": _bare,
    "bare-acks": partial(_bare, acknowledges=True),
    "bare-gathers": partial(_bare, events="gathered"),
    "bare-mute": partial(_bare, events="none"),
    "bare-hasty": partial(_bare, confirmed=False),
    "aio-pika": partial(_aio_pika, events=True),
    "aio-pika-mute": partial(_aio_pika, events=False),
}


def measure(rig: Rig) -> list[Row]:
    """Return the rows of both prefetches."""
    with rig.pool() as pool, ExitStack() as stack:
        pairs: dict[str, tuple[Side, Side]] = {}
        for prefetch in PREFETCHES:
            for name, start in PAIRS.items():
                sides = start(pool, f"{name}-{prefetch}", prefetch)
                for side in sides:
                    stack.enter_context(side)
                pairs[f"{name}-{prefetch}"] = sides
        for _, client in pairs.values():
            client.turn(WARM_UP_SECONDS)
        seen: dict[str, list[TurnResult]] = {name: [] for name in pairs}
        beam = rigs.broker_process(rig.broker)
        for done, name in enumerate(rigs.in_turns(rig.rounds, list(pairs))):
            if done % len(pairs) == 0:
                rig.progress(f"calls: round {done // len(pairs) + 1} of {rig.rounds}")
            rigs.purge_activity(pool)
            seen[name].append(_turn(rig, beam, *pairs[name]))
    rates = {name: [turn.rate for turn in turns] for name, turns in seen.items()}
    busy = {name: [turn.busy for turn in turns] for name, turns in seen.items()}
    work = {name: [turn.broker_ms for turn in turns] for name, turns in seen.items()}
    return rows(rates) + bounds(rates, busy) + works(work)


@dataclass(frozen=True, slots=True)
class TurnResult:
    """What was seen of one turn of a pair."""

    #: Calls a second.
    rate: float
    #: Part of the turn for which the worker used a processor.
    busy: float
    #: Processor time of the broker for a call, in milliseconds.
    broker_ms: float


def _turn(rig: Rig, beam: psutil.Process, worker: Side, client: Side) -> TurnResult:
    before = rigs.cpu_seconds(worker.process), rigs.cpu_seconds(beam)
    turn = client.turn(rig.seconds)
    used = rigs.cpu_seconds(worker.process) - before[0], rigs.cpu_seconds(beam) - before[1]
    return TurnResult(turn.rate, used[0] / turn.seconds, used[1] * 1000 / turn.calls)


def rows(rates: dict[str, list[float]]) -> list[Row]:
    """Return what the rates of all pairs say; rounds stand in the same order in each."""
    unit = "calls/s"
    many, one = PREFETCHES
    result = []
    for prefetch in PREFETCHES:
        of = {name: rates[f"{name}-{prefetch}"] for name in PAIRS}
        at = f"prefetch {prefetch}"
        bare, aio, cheap = Target(0.7), Target(3.0), Target(0.9)
        result += [
            compared(f"calls, {at}, handler on the loop", unit, of["ours"], of["bare"], BARE, bare),
            compared(f"calls, {at}, handler in a thread", unit, of["thread"], of["bare"], BARE, bare),
            compared(
                f"calls, {at}, the peer acknowledges replies, as ours",
                unit,
                of["ours"],
                of["bare-acks"],
                f"{BARE}, with acks",
            ),
            compared(
                f"calls, {at}, the peer gathers its events, as ours",
                unit,
                of["ours"],
                of["bare-gathers"],
                f"{BARE}, gathered events",
            ),
            compared(f"calls, {at}, handler on the loop", unit, of["ours"], of["aio-pika"], AIO_PIKA, aio),
            compared(f"calls, {at}, handler in a thread", unit, of["thread"], of["aio-pika"], AIO_PIKA, aio),
            compared(f"cost of events, ours, {at}", unit, of["ours"], of["ours-mute"], "ours, no events", cheap),
            compared(
                f"calls, {at}, the peer sends no events",
                unit,
                of["ours"],
                of["bare-mute"],
                f"{BARE}, no events",
                Target(0.9) if prefetch == many else None,
            ),
            compared(
                f"calls, {at}, the peer sends no events",
                unit,
                of["ours"],
                of["aio-pika-mute"],
                f"{AIO_PIKA}, no events",
                Target(4.0) if prefetch == many else None,
            ),
            compared(f"{BARE} in our place, {at}", unit, of["bare"], of["aio-pika"], AIO_PIKA),
            compared(f"cost of events, {BARE}, {at}", unit, of["bare"], of["bare-mute"], f"{BARE}, no events"),
            compared(
                f"worth of gathering events, {BARE}, {at}",
                unit,
                of["bare-gathers"],
                of["bare"],
                f"{BARE}, single events",
            ),
        ]
    for name, title in (("ours", "ours"), ("bare", BARE)):
        result.append(
            compared(
                f"cost of prefetch {one}, {title}",
                unit,
                rates[f"{name}-{one}"],
                rates[f"{name}-{many}"],
                f"prefetch {many}",
            )
        )
    return result


def bounds(rates: dict[str, list[float]], busy: dict[str, list[float]]) -> list[Row]:
    """Return how far workers could come where the broker hands out one request at a time.

    `busy` is the part of each turn for which the pair's worker used a processor: no other worker can save more, as
    long as it asks the same of the broker.
    """
    unit, at, peer = "calls/s", "prefetch 1", rates["aio-pika-1"]

    def without_work(name: str) -> list[float]:
        # A clock of 10 ms can find a short turn busier than it was long.
        return [rate / (1 - min(share, 0.99)) for rate, share in zip(rates[name], busy[name], strict=True)]

    return [
        compared(
            f"{BARE} in our place, {at}, acknowledges before the confirm", unit, rates["bare-hasty-1"], peer, AIO_PIKA
        ),
        compared(f"{AIO_PIKA}, {at}, if its worker took no time", unit, without_work("aio-pika-1"), peer, AIO_PIKA),
        compared(
            f"{AIO_PIKA}, {at}, if its worker took no time and sent no events",
            unit,
            without_work("aio-pika-mute-1"),
            peer,
            AIO_PIKA,
        ),
        compared(
            f"{BARE} in our place, {at}, if its worker took no time", unit, without_work("bare-1"), peer, AIO_PIKA
        ),
    ]


def works(work: dict[str, list[float]]) -> list[Row]:
    """Return what a call costs the broker, which neighbours of the machine change least of all figures here."""
    return [
        compared(
            f"processor time of the broker for a call, prefetch {prefetch}, {title}", "ms", of, peer, peer_name, target
        )
        for prefetch in PREFETCHES
        for title, of, peer, peer_name, target in (
            ("ours", work[f"ours-{prefetch}"], work[f"bare-{prefetch}"], BARE, None),
            ("ours", work[f"ours-{prefetch}"], work[f"aio-pika-{prefetch}"], AIO_PIKA, None),
            (
                "ours",
                work[f"ours-{prefetch}"],
                work[f"ours-mute-{prefetch}"],
                "ours, no events",
                Target(1.15, at_most=True),
            ),
            (BARE, work[f"bare-{prefetch}"], work[f"bare-mute-{prefetch}"], f"{BARE}, no events", None),
            (f"{BARE}, gathered events", work[f"bare-gathers-{prefetch}"], work[f"bare-{prefetch}"], BARE, None),
        )
    ]
