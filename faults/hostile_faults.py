"""A hostile peer with a client's password: it sends what is generated from a seed, while honest clients go on."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from random import Random
from urllib.parse import quote

from hypothesis import strategies as st

from faults import load
from faults.rig import VHOST, Rig
from testbed.hostile import amqp_1_0, frames, http
from testbed.hostile.chance import NAMES, drawn
from testbed.hostile.sending import ask, send_frames, send_messages

#: Messages of AMQP 1.0, of attacks in frames of AMQP 0-9-1, and of requests to the daemon's status, for one fault.
COUNT = 60
#: Seconds for which the honest clients are watched before.
CALM = 5.0
#: Seconds within which all of it is answered, kept or parked.
DRAINED = 120.0
#: Names that no worker can be given, and for one request in four a key of the attacker's own: its worker waits longer
#: each time before it connects again.
KEYS = st.integers(0, 3).flatmap(lambda number: NAMES.map("\0{}".format) if number else st.just("library-hostile"))


def hostile_peer(rig: Rig, random: Random) -> str:
    """Whatever it sends, no honest request of a warm key fails. How late they are goes into the report."""
    first, names = random.randrange(1_000_000), rig.pool.names
    replies = [f"/queues/{name}" for name in (names.orphan_queue, names.poison_queue, names.dead_letter_queue)]
    sent = drawn(st.tuples(KEYS, amqp_1_0.everything(replies)), first, COUNT)
    addressed = [(f"/exchanges/{names.request_exchange}/{quote(key, safe='')}", data) for key, data in sorted(sent)]
    keys, exchange = KEYS.map(lambda key: key.encode()), names.request_exchange
    raw = drawn(frames.messages(exchange, keys) | frames.broken(exchange), first, COUNT)
    requests = drawn(http.requests(["/status", "/metrics", "/healthz", "/readyz"]), first, COUNT)
    # Not through the proxy, which reads honest frames only.
    user = rig.pool.users.client
    uri = rig.broker.amqp_uri(user, rig.pool.passwords[user], VHOST)

    calm = time.monotonic()
    rig.last(CALM)
    began = time.monotonic()
    with ThreadPoolExecutor(2) as threads:
        taken, framed = threads.submit(send_messages, uri, addressed), threads.submit(send_frames, uri, raw)
        for one in requests:
            ask("127.0.0.1", int(rig.leader.url.rpartition(":")[2]), one)
        framed.result()
    parked = (names.orphan_queue, names.dead_letter_queue, names.request_queue("library-hostile"))
    rig.until_true(
        lambda: not any(rig.pool.depth(queue) for queue in parked), within=DRAINED, what="the end of the attack"
    )
    ended = time.monotonic()
    _until_answered(rig, began, ended)
    before, beside = rig.ledger.late(load.WARM, calm, began), rig.ledger.late(load.WARM, began, ended)
    rig.late.append(beside / before)
    assert rig.leader.status()["state"] == "leading"
    figures = f"p99 {1000 * beside:.0f} ms, and {1000 * before:.0f} ms in the calm before it"
    return f"seed {first}: {taken.result()} of {COUNT} messages taken, {figures}"


def _until_answered(rig: Rig, began: float, ended: float) -> None:
    """Wait for the answers to what honest clients asked of warm keys meanwhile. Raises AssertionError for a failure."""

    def asked() -> list[str]:
        requests = rig.read().requests.values()
        found = [
            one for one in requests if one.key in load.WARM and began <= one.sent < ended and one.client in rig.alive
        ]
        return [one.replies[0] if one.replies else one.refused or "" for one in found]

    rig.until_true(lambda: all(asked()), what="answers to honest clients")
    failed = sorted(set(asked()) - {"ok"})
    assert not failed, f"honest requests failed: {', '.join(failed)}"
