"""What workers that poll and get nothing cost: commands and connections at Redis, and memory and time of their node."""

from __future__ import annotations

import time
from contextlib import ExitStack

from benchmarks import rig as rigs
from benchmarks.ratios import Row, Spread
from benchmarks.rig import Rig, Side
from testbed.redis import RedisServer
from testbed.waiting import until

#: Endpoints with a worker each.
ENDPOINTS, QUICK_ENDPOINTS = 1_000, 100
#: Seconds until the endpoints have come to rest (see `look_first`), and for which is measured: four times `look_every`.
REST_SECONDS, SECONDS = 45.0, 60.0
QUICK_REST, QUICK_SECONDS = 3.0, 5.0


def measure(rig: Rig) -> list[Row]:
    """Return a row for each cost."""
    number = QUICK_ENDPOINTS if rig.quick else ENDPOINTS
    rest, seconds = (QUICK_REST, QUICK_SECONDS) if rig.quick else (REST_SECONDS, SECONDS)
    with RedisServer() as server, ExitStack() as stack:
        none, node = (stack.enter_context(_node(server, many)) for many in (0, number))
        last = f"osrdyne-relay:{{endpoint/{number - 1}}}:pulse"
        until(lambda: server.run("PUBSUB", "NUMSUB", last)[1] == 1, what="a node that listens to all endpoints")
        rig.progress(f"{number:,} polling workers: {rest:.0f} s until they are at rest, then {seconds:.0f} s")
        time.sleep(rest)
        before, began = _commands(server), time.monotonic()
        cpu = rigs.cpu_seconds(node.process)
        time.sleep(seconds)
        took = time.monotonic() - began
        cpu = rigs.cpu_seconds(node.process) - cpu
        # Less those of the measurement itself: to authenticate, and to ask.
        commands = _commands(server) - before - 2
        connections = sum(b"cmd=client" not in line for line in server.run("CLIENT", "LIST").splitlines())
        memory = node.process.memory_info().rss - none.process.memory_info().rss
    what = f"{number:,} polling workers"
    return [
        _row(f"{what}: commands at Redis", "1/s", commands / took),
        _row(f"{what}: connections to Redis, and those of a node without workers", "", connections),
        _row(f"{what}: memory of their node, above one without workers", "MB", memory / 1e6),
        _row(f"{what}: processor time of their node", "ms/s", 1000 * cpu / took),
    ]


def _node(server: RedisServer, endpoints: int) -> Side:
    names = [f"endpoint/{number}" for number in range(endpoints)]
    options = {"endpoints": names, "workers": 1, "address_file": str(server.address_file)}
    return Side("relay_worker", "", **options)


def _commands(server: RedisServer) -> int:
    return int(server.run("INFO", "stats")["total_commands_processed"])


def _row(measure: str, unit: str, value: float) -> Row:
    return Row(measure=measure, unit=unit, ours=Spread.of([value]))
