"""Calls a second: our client and worker next to bare pika and next to aio-pika's RPC pattern, 64 calls at once.

All pairs are up at the same time and take turns, so that each ratio is of two turns next to each other. Also what
activity events and a prefetch of 1 cost.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from benchmarks import rig as rigs
from benchmarks.ratios import Row, Target, compared
from benchmarks.rig import Rig, Side
from tests.engines.pool import Pool

#: Seconds for which a pair makes calls before it is measured, so that connections, queues and caches are warm.
WARM_UP = 0.3
PREFETCHES = (64, 1)
BARE = "bare pika"
AIO_PIKA = "aio-pika RPC"

#: Name of a pair -> what starts it: client, worker.
Pairs = dict[str, Callable[[Pool, str, int], tuple[Side, Side]]]


def _ours(pool: Pool, key: str, prefetch: int, *, threads: int) -> tuple[Side, Side]:
    worker = rigs.our_worker(pool, key, prefetch=prefetch, threads=threads)
    return worker, rigs.client("our_client", pool, key)


def _bare(pool: Pool, key: str, prefetch: int, *, events: bool = True, acknowledges: bool = False) -> tuple[Side, Side]:
    worker = rigs.bare_worker(pool, key, prefetch=prefetch, events=events)
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
    "thread": partial(_ours, threads=1),
    "bare": _bare,
    "bare-acks": partial(_bare, acknowledges=True),
    "bare-mute": partial(_bare, events=False),
    "aio-pika": partial(_aio_pika, events=True),
    "aio-pika-mute": partial(_aio_pika, events=False),
}


def measure(rig: Rig) -> list[Row]:
    """Return the rows of both prefetches."""
    with rig.pool() as pool, ExitStack() as stack:
        clients: dict[str, Side] = {}
        for prefetch in PREFETCHES:
            for name, start in PAIRS.items():
                sides = start(pool, f"{name}-{prefetch}", prefetch)
                for side in sides:
                    stack.enter_context(side)
                clients[f"{name}-{prefetch}"] = sides[1]
        for client in clients.values():
            client.turn(WARM_UP)
        rates: dict[str, list[float]] = {name: [] for name in clients}
        for done, name in enumerate(rigs.in_turns(rig.rounds, list(clients))):
            if done % len(clients) == 0:
                rig.progress(f"calls: round {done // len(clients) + 1} of {rig.rounds}")
            rigs.purge_activity(pool)
            rates[name].append(clients[name].turn(rig.seconds).rate)
    return rows(rates)


def rows(rates: dict[str, list[float]]) -> list[Row]:
    """Return what the rates of all pairs say; rounds stand in the same order in each."""
    unit = "calls/s"
    result = []
    for prefetch in PREFETCHES:
        of = {name: rates[f"{name}-{prefetch}"] for name in PAIRS}
        at = f"prefetch {prefetch}"
        bare, aio = Target(0.7), Target(3.0)
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
            compared(f"calls, {at}, handler on the loop", unit, of["ours"], of["aio-pika"], AIO_PIKA, aio),
            compared(f"calls, {at}, handler in a thread", unit, of["thread"], of["aio-pika"], AIO_PIKA, aio),
            compared(
                f"calls, {at}, the peer sends no events",
                unit,
                of["ours"],
                of["aio-pika-mute"],
                f"{AIO_PIKA}, no events",
            ),
            compared(f"{BARE} in our place, {at}", unit, of["bare"], of["aio-pika"], AIO_PIKA),
            compared(f"cost of events, bare pika, {at}", unit, of["bare"], of["bare-mute"], f"{BARE}, no events"),
        ]
    many, one = PREFETCHES
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
