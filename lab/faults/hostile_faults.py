"""A hostile peer with a client's and a worker's password: it sends what is generated from a seed.

Honest clients go on beside it. Calm and attack take turns, so that whatever else the machine does meanwhile meets both.
"""

from __future__ import annotations

import time
from random import Random
from urllib.parse import quote

from hypothesis import strategies as st

from faults import load
from faults.attacker import Attack, Attacker
from faults.rig import VHOST, Rig
from testbed.command_line import osrdyne
from testbed.hostile import amqp_1_0, frames, http
from testbed.hostile.chance import NAMES, drawn

#: Turns, and how much of each kind is sent in a turn: messages of AMQP 1.0 and attacks in frames of AMQP 0-9-1, by the
#: client and by the worker, and requests to the daemon's status.
TURNS, COUNT = 5, 16
#: Seconds of the calm of a turn. It is as long as the attack before it, if that is longer.
CALM_SECONDS = 5.0
#: Seconds within which all of an attack is answered, kept or parked.
DRAINED_SECONDS = 120.0
HOSTILE = "library-hostile"
#: Names that no worker can be given, and for one request in four a key of the attacker's own: its worker waits longer
#: each time before it connects again.
KEYS = st.integers(0, 3).flatmap(lambda number: NAMES.map("\0{}".format) if number else st.just(HOSTILE))

Window = tuple[float, float]


def hostile_peer(rig: Rig, random: Random) -> str:
    """Whatever it sends, no honest request of a warm key fails. How late they are goes into the report."""
    first = random.randrange(1_000_000)
    turns = [_attacks(rig, first + turn) for turn in range(TURNS)]
    calm, hostile, taken = list[Window](), list[Window](), 0
    with Attacker() as attacker:
        length = CALM_SECONDS
        for attacks in turns:
            began = time.monotonic()
            _until_over(rig, began + length)
            turned = time.monotonic()
            taken += attacker.send(attacks)
            _until_over(rig, turned)
            ended = time.monotonic()
            calm.append((began, turned))
            hostile.append((turned, ended))
            length = max(CALM_SECONDS, ended - turned)
    _until_answered(rig, hostile[0][0], hostile[-1][1])
    before, beside = rig.ledger.late(load.WARM, calm), rig.ledger.late(load.WARM, hostile)
    rig.late.append(beside / before)
    assert rig.leader.status()["state"] == "leading"
    assert osrdyne("status", "--url", rig.leader.url).code == 0
    lasted = sum(end - begin for begin, end in hostile)
    return (
        f"seed {first}: {taken} of {2 * TURNS * COUNT} messages taken in {lasted:.0f} s, p99 {1000 * beside:.0f} ms, "
        f"and {1000 * before:.0f} ms in the calm between"
    )


def _until_over(rig: Rig, moment: float) -> None:
    """Wait until nothing waits that an attack has sent, and for this moment. Calm is watched as an attack is."""
    names = rig.pool.names
    queues = (names.orphan_queue, names.dead_letter_queue, names.activity_queue, names.request_queue(HOSTILE))

    def is_over() -> bool:
        return not any(rig.pool.depth(queue) for queue in queues) and time.monotonic() >= moment

    rig.until_true(is_over, within=DRAINED_SECONDS, what="the end of the attack")


def _attacks(rig: Rig, seed: int) -> list[Attack]:
    """Return what a client sends, and what a worker does.

    The worker leaves alone what the account is read from in the end: it could hide replies and the inventory.
    """
    names, users = rig.pool.names, rig.pool.users
    replies = [f"/queues/{name}" for name in (names.orphan_queue, names.poison_queue, names.dead_letter_queue)]
    exchange, keys = names.request_exchange, KEYS.map(lambda key: key.encode())
    sent = drawn(st.tuples(KEYS, amqp_1_0.everything(replies)), seed, COUNT)
    client = Attack(
        _uri(rig, users.client),
        [(f"/exchanges/{exchange}/{quote(key, safe='')}", data) for key, data in sorted(sent)],
        drawn(frames.messages(exchange, keys) | frames.broken(exchange), seed, COUNT),
        int(rig.leader.url.rpartition(":")[2]),
        drawn(http.requests(["/status", "/metrics", "/healthz", "/readyz"]), seed, COUNT),
    )
    queues = [names.orphan_queue, names.dead_letter_queue, names.activity_queue, names.leader_queue]
    queues += [names.events_stream, names.request_queue(HOSTILE)]
    to = [*(f"/queues/{quote(queue, safe='')}" for queue in queues), f"/exchanges/{names.activity_exchange}/{HOSTILE}"]
    named = st.sampled_from([queue.encode() for queue in queues])
    worker = Attack(
        _uri(rig, users.worker),
        sorted(drawn(st.tuples(st.sampled_from(to), amqp_1_0.everything(replies)), seed, COUNT)),
        drawn(frames.messages("", named) | frames.messages(names.activity_exchange) | frames.broken(""), seed, COUNT),
        client.status_port,
        [],
    )
    return [client, worker]


def _uri(rig: Rig, user: str) -> str:
    """Return an address that is not the proxy's, which reads honest frames only."""
    return rig.broker.amqp_uri(user, rig.pool.passwords[user], VHOST)


def _until_answered(rig: Rig, began: float, ended: float) -> None:
    """Wait for the answers to what honest clients asked of warm keys meanwhile. Raises AssertionError for a failure."""

    def asked() -> list[str]:
        requests = rig.read().requests.values()
        found = [
            request
            for request in requests
            if request.key in load.WARM and began <= request.sent < ended and request.client in rig.alive
        ]
        return [request.replies[0] if request.replies else request.refused or "" for request in found]

    rig.until_true(lambda: all(asked()), what="answers to honest clients")
    failed = sorted(set(asked()) - {"ok"})
    assert not failed, f"honest requests failed: {', '.join(failed)}"
