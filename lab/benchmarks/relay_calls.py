"""Calls a second over the relay: beside plain Redis lists written by hand, and beside Celery, all on one Redis.

One call at a time, and 64. The lists are written by hand in three ways: on asyncio with a list for each call; the same
with one list for each client, from which all answers that are there are taken at once; and with threads that block,
and the fewest commands. None of them survives what the relay does.
"""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks import rig as rigs
from benchmarks.ratios import Row, Target, compared
from benchmarks.rig import Rig, Side
from testbed.redis import RedisServer

#: Calls at a time. There are as many workers.
OUTSTANDING = (1, 64)
#: Seconds for which a side makes calls before it is measured.
WARM_UP_SECONDS = 0.3
OURS, CELERY = "ours", "Celery on Redis"
LISTS = {
    "lists by hand, on asyncio": "lists",
    "lists by hand, on asyncio, gathered": "gathered_lists",
    "lists by hand, with threads": "blocking_lists",
}
#: Name of a side -> its programs, but for `_client` and `_worker`.
SIDES = {OURS: "relay", **LISTS, CELERY: "celery_redis"}


def measure(rig: Rig) -> list[Row]:
    """Return a row for each peer and number of calls."""
    with RedisServer() as server, ExitStack() as stack:
        clients = {_pair(name, many): _client(server, stack, name, many) for many in OUTSTANDING for name in SIDES}
        rates: dict[str, list[float]] = {pair: [] for pair in clients}
        for pair, client in clients.items():
            client.turn(WARM_UP_SECONDS, _many(pair))
        for done, pair in enumerate(rigs.in_turns(rig.rounds, list(clients))):
            if done % len(clients) == 0:
                rig.progress(f"calls over Redis: round {done // len(clients) + 1} of {rig.rounds}")
            rates[pair].append(clients[pair].turn(rig.seconds, _many(pair)).rate)
    return [
        compared(
            f"calls over the relay, {many} at once",
            "calls/s",
            rates[_pair(OURS, many)],
            rates[_pair(peer, many)],
            peer,
            Target(3.0 if peer == CELERY else 0.7),
        )
        for many in OUTSTANDING
        for peer in (*LISTS, CELERY)
    ]


def _pair(name: str, many: int) -> str:
    return f"{many} {name}"


def _many(pair: str) -> int:
    return int(pair.split(maxsplit=1)[0])


def _client(server: RedisServer, stack: ExitStack, name: str, many: int) -> Side:
    """Start the worker and the client of a side."""
    address = server.address_file.read_text().strip()
    options = {"endpoints": [f"{SIDES[name]}-{many}"], "workers": many, "address_file": str(server.address_file)}
    worker = stack.enter_context(Side(f"{SIDES[name]}_worker", address, **options))
    if name == CELERY:
        worker.wait_ready()
    return stack.enter_context(Side(f"{SIDES[name]}_client", address, **options))
