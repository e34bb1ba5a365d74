"""Calls a second over the bus, beside oslo.messaging, each through a router without queues.

oslo.messaging 14.9.1 is its last release that has a driver for AMQP 1.0. The driver has its own formats of addresses,
which RabbitMQ 4 does not know. So the peer is a router of the tests' mesh, and each side has one of its own, as a
process.

The router is Python and slow, so its processor time is shown, too: times the rate, it says how busy the router was.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks import rig as rigs
from benchmarks.ratios import Row, compared
from benchmarks.rig import OUTSTANDING, Rig, Side
from testbed import oslo, proton

#: Seconds for which a side makes calls before it is measured.
WARM_UP_SECONDS = 0.5
#: Modules of the sides, and what the rows call them.
OURS = {"bus_threads": "threads", "bus": "asyncio"}
PEER = "oslo"
PEER_NAME = "oslo.messaging, threads"


def measure(rig: Rig) -> list[Row]:
    """Return rows for each way to use ours: calls at both numbers at once, and processor time at the higher one."""
    rates: dict[tuple[str, int], list[float]] = defaultdict(list)
    ends: dict[tuple[str, int], list[float]] = defaultdict(list)
    routers: dict[tuple[str, int], list[float]] = defaultdict(list)
    with ExitStack() as stack:
        sides = {name: _SidePrograms.of(stack, name) for name in (*OURS, PEER)}
        for side in sides.values():
            side.client.turn(WARM_UP_SECONDS)
        turns = {f"{many} {name}": (name, many) for many in (1, OUTSTANDING) for name in sides}
        for done, turn in enumerate(rigs.in_turns(rig.rounds, list(turns))):
            if done % len(turns) == 0:
                rig.progress(f"calls over a router: round {done // len(turns) + 1} of {rig.rounds}")
            name, many = turns[turn]
            rate, end, router = sides[name].turn(rig.seconds, many)
            rates[name, many].append(rate)
            ends[name, many].append(end)
            routers[name, many].append(router)
    figures = [
        ("calls over a router, {}, 1 at once", "calls/s", rates, 1),
        (f"calls over a router, {{}}, {OUTSTANDING} at once", "calls/s", rates, OUTSTANDING),
        (f"processor time of client and server for a call, {{}}, {OUTSTANDING} at once", "ms", ends, OUTSTANDING),
        (f"processor time of the router for a call, {{}}, {OUTSTANDING} at once", "ms", routers, OUTSTANDING),
    ]
    return [
        compared(measure.format(text), unit, values[name, many], values[PEER, many], PEER_NAME)
        for measure, unit, values, many in figures
        for name, text in OURS.items()
    ]


@dataclass(frozen=True, slots=True)
class _SidePrograms:
    """The programs of a side."""

    router: Side
    worker: Side
    client: Side

    @classmethod
    def of(cls, stack: ExitStack, name: str) -> _SidePrograms:
        environment = {"PYTHONPATH": str(proton.folder())}
        router = stack.enter_context(Side("mesh_router", "", environment))
        uri = f"amqp://127.0.0.1:{router.wait_ready()}"
        if name == PEER:
            environment["PYTHONPATH"] += f":{oslo.folder()}"
            environment["PYTHONWARNINGS"] = "ignore"  # of its own parts that are deprecated
        worker = stack.enter_context(Side(f"{name}_worker", uri, environment))
        worker.wait_ready()
        return cls(router, worker, stack.enter_context(Side(f"{name}_client", uri, environment)))

    def turn(self, seconds: float, outstanding: int) -> tuple[float, float, float]:
        """Return calls a second, and processor time for a call, in ms: of client and server, and of the router."""
        before = rigs.cpu_seconds(self.worker.process), rigs.cpu_seconds(self.router.process)
        turn = self.client.turn(seconds, outstanding)
        worker = rigs.cpu_seconds(self.worker.process) - before[0]
        router = rigs.cpu_seconds(self.router.process) - before[1]
        return turn.rate, (turn.cpu + worker) * 1000 / turn.calls, router * 1000 / turn.calls
