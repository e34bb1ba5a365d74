"""Calls a second over the bus, beside requests and replies written by hand on proton's own reactor, on one RabbitMQ.

One call at a time, and 64. By hand means: the client has a receiver on its reply queue and one sender, takes what the
broker acknowledges for sent, and finds the reply by its correlation id; the worker answers in its handler. It has no
time-outs, no reconnection, no bound to what waits, and one thread that does nothing else.
"""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks import rig as rigs
from benchmarks.ratios import Row, Target, compared
from benchmarks.rig import Rig, Side
from testbed import proton

#: Calls at a time.
OUTSTANDING = (1, 64)
#: Seconds for which a side makes calls before it is measured.
WARM_UP = 0.5
OURS, BY_HAND = "bus", "proton"
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
    for queue, kind in (("by-hand", "quorum"), ("by-hand-replies", "classic")):
        body = {"durable": True, "arguments": {"x-queue-type": kind}}
        rig.broker.management.put("queues", VHOST, queue, body=body)
    rates: dict[tuple[str, int], list[float]] = {(side, many): [] for many in OUTSTANDING for side in (OURS, BY_HAND)}
    with ExitStack() as stack:
        clients = {side: _client(rig, stack, side) for side in (OURS, BY_HAND)}
        for client in clients.values():
            client.turn(WARM_UP, max(OUTSTANDING))
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
            rates[BY_HAND, many],
            "proton by hand",
            Target(0.8),
        )
        for many in OUTSTANDING
    ]


def _client(rig: Rig, stack: ExitStack, side: str) -> Side:
    """Start the worker and the client of a side."""
    uri, environment = rig.broker.amqp_uri(vhost=VHOST), {"PYTHONPATH": str(proton.folder())}
    stack.enter_context(Side(f"{side}_worker", uri, environment, vhost=VHOST)).wait_ready()
    return stack.enter_context(Side(f"{side}_client", uri, environment, vhost=VHOST))
