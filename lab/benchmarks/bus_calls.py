"""Calls a second over the bus, beside requests and replies written by hand, on one RabbitMQ.

By hand they are on proton's own reactor, and on rhea, a library for Node.js. One call at a time, and 64.

By hand means: the client has a receiver on its reply queue and one sender, takes what the broker acknowledges for sent,
and finds the reply by its correlation id; the worker answers in its handler. It has no time-outs, no reconnection, no
bound to what waits, and one thread that does nothing else.
"""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks import rig as rigs
from benchmarks.ratios import Row, Target, compared
from benchmarks.rig import Rig, Side
from testbed import proton
from testbed.node import building

#: Calls at a time.
OUTSTANDING = (1, 64)
#: Seconds for which a side makes calls before it is measured.
WARM_UP_SECONDS = 0.5
OURS = "bus"
#: Sides by hand, and how much of their rate ours has to reach; None where that is only shown.
BY_HAND = {"proton": Target(0.8), "rhea": None}
VHOST = "benchmark-bus"


def measure(rig: Rig) -> list[Row]:
    """Return a row for each number of calls."""
    management = rig.broker.management
    management.add_vhost(VHOST, rig.broker.admin)
    try:
        return _measured(rig)
    finally:
        management.delete("vhosts", VHOST)


def _measured(rig: Rig) -> list[Row]:
    sides = (OURS, *BY_HAND)
    for side in BY_HAND:
        for queue, kind in ((side, "quorum"), (f"{side}-replies", "classic")):
            body = {"durable": True, "arguments": {"x-queue-type": kind}}
            rig.broker.management.put("queues", VHOST, queue, body=body)
    rates: dict[tuple[str, int], list[float]] = {(side, many): [] for many in OUTSTANDING for side in sides}
    with ExitStack() as stack:
        clients = {side: _client(rig, stack, side) for side in sides}
        for client in clients.values():
            client.turn(WARM_UP_SECONDS, max(OUTSTANDING))
        turns = {f"{many} {side}": (side, many) for side, many in rates}
        for done, name in enumerate(rigs.in_turns(rig.rounds, list(turns))):
            if done % len(turns) == 0:
                rig.progress(f"calls over the bus: round {done // len(turns) + 1} of {rig.rounds}")
            side, many = turns[name]
            rates[side, many].append(clients[side].turn(rig.seconds, many).rate)
    return [
        compared(
            f"calls over the bus, {many} at once",
            "calls/s",
            rates[OURS, many],
            rates[side, many],
            f"{side} by hand",
            target,
        )
        for many in OUTSTANDING
        for side, target in BY_HAND.items()
    ]


def _client(rig: Rig, stack: ExitStack, side: str) -> Side:
    """Start the worker and the client of a side."""
    uri = rig.broker.amqp_uri(vhost=VHOST)
    if side == "rhea":
        made = building.folder()
        environment, node = {"NODE_PATH": str(made / "node_modules")}, str(made / "node")
    else:
        environment, node = {"PYTHONPATH": str(proton.folder())}, ""
    stack.enter_context(Side(f"{side}_worker", uri, environment, node, vhost=VHOST)).wait_ready()
    return stack.enter_context(Side(f"{side}_client", uri, environment, node, vhost=VHOST))
