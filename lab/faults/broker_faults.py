"""Faults of the broker and of what is on it: restarts, alarms, deleted objects, revoked rights.

What is deleted holds nothing that could be lost with it, and static objects are put back as infrastructure code would
put them back. The policies with a dead-letter exchange stay: without one, the loss of what dies is the fault's own.
"""

from __future__ import annotations

import time
from random import Random

import pika

from faults import load
from faults.rig import VHOST, Rig
from testbed.broker import MEMORY_MB
from testbed.lost_queue import lose_as_by_a_kill

#: Seconds for which a missing object or a missing right lasts.
LASTS_SECONDS = 1.5
#: Seconds for which an alarm lasts; the management API shows it up to a second late.
ALARM_LASTS_SECONDS = 3.0


def broker_restarted(rig: Rig, random: Random) -> str:
    rig.broker.restart()
    return "stopped and started"


def broker_killed(rig: Rig, random: Random) -> str:
    """At any moment, also right after queues were declared: what the broker loses then is counted apart."""
    rig.broker.kill()
    at = time.monotonic()
    rig.broker.start()
    rig.note_kill(at)
    return "SIGKILL"


def queue_lost(rig: Rig, random: Random) -> str:
    """A queue with requests is lost as a SIGKILL loses one; on 4.3 it is empty then."""
    queue = rig.pool.names.request_queue(random.choice([*load.WARM, load.CRASHES]))
    rig.until_true(lambda: queue in rig.pool.queues(), what=queue)
    began = time.monotonic()
    lose_as_by_a_kill(rig.broker, VHOST, queue)
    # It can take a minute, where a connection waits for the lost queue and is to be closed.
    rig.note_lost(queue, began, time.monotonic())
    return f"{queue}, within {time.monotonic() - began:.1f} s"


def memory_alarm(rig: Rig, random: Random) -> str:
    limit = "vm_memory_monitor, set_vm_memory_high_watermark"
    return _alarm(rig, "mem_alarm", limit, "{absolute, 1000000}", f"{{absolute, {MEMORY_MB}000000}}")


def disk_alarm(rig: Rig, random: Random) -> str:
    limit = "rabbit_disk_monitor, set_disk_free_limit"
    return _alarm(rig, "disk_free_alarm", limit, '"900000GB"', '"200MB"')


def _alarm(rig: Rig, name: str, limit: str, too_much: str, usual: str) -> str:
    """Set a limit, and back: both by one command, because a command takes longer than an alarm should last."""

    def raised() -> bool:
        return bool(rig.broker.management.get("nodes")[0].get(name))

    back = f"timer:apply_after({round(ALARM_LASTS_SECONDS * 1000)}, {limit}, [{usual}])"
    rig.broker.rabbitmqctl("eval", f"{{ok, _}} = {back}, apply({limit}, [{too_much}]).")
    rig.until_true(raised, what=name)
    rig.until_true(lambda: not raised(), what=f"end of {name}")
    return "publishers blocked"


def queue_deleted(rig: Rig, random: Random) -> str:
    """The queue of a key that rests, or the activity queue; neither holds a request."""
    names = rig.pool.names
    if random.random() < 0.5:
        rig.broker.management.delete("queues", VHOST, names.activity_queue)
        rig.wait(LASTS_SECONDS)
        rig.pool.restore()
        return names.activity_queue
    queue = names.request_queue(load.SPARE)
    rig.pause(load.SPARE)
    try:
        # Twice in a row: what the broker says of a queue is a moment late.
        for _ in range(2):
            rig.wait(1.0)
            rig.until_true(lambda: rig.pool.depth(queue) == 0, what=f"empty {queue}")
        rig.broker.management.delete("queues", VHOST, queue)
    finally:
        rig.resume(load.SPARE)
    return queue


def lock_deleted(rig: Rig, random: Random) -> str:
    ended = rig.leader.sessions_ended()
    rig.broker.rabbitmqctl("delete_queue", "--vhost", VHOST, rig.pool.names.leader_queue)
    rig.until_true(lambda: rig.leader.sessions_ended() > ended, what="the lost lock")
    rig.leader.wait_for("leading", timeout=60)
    return rig.pool.names.leader_queue


def policy_deleted(rig: Rig, random: Random) -> str:
    """Without the alternate exchange, requests for cold keys come back to their clients, who know then."""
    names = rig.pool.names
    policy = random.choice([names.request_exchange, names.activity_queue, names.poison_queue, names.events_stream])
    rig.broker.management.delete("policies", VHOST, policy)
    rig.wait(LASTS_SECONDS)
    rig.pool.restore()
    return policy


def binding_deleted(rig: Rig, random: Random) -> str:
    """A key's binding is the daemon's to restore; the others are put back."""
    names = rig.pool.names
    exchange, queue, key = random.choice(
        [
            (names.request_exchange, names.request_queue(load.SPARE), load.SPARE),
            (names.orphan_exchange, names.orphan_queue, ""),
            (names.activity_exchange, names.activity_queue, ""),
        ]
    )
    uri = rig.broker.amqp_uri(vhost=VHOST)
    connection = pika.BlockingConnection(pika.URLParameters(uri))
    connection.channel().queue_unbind(queue, exchange, key)
    connection.close()
    rig.wait(LASTS_SECONDS)
    rig.pool.restore()
    return f"{exchange} to {queue}"


def permission_revoked(rig: Rig, random: Random) -> str:
    users = rig.pool.users
    user = random.choice([users.client, users.worker, users.daemon])
    nothing = {"configure": "^$", "write": "^$", "read": "^$"}
    rig.broker.management.put("permissions", VHOST, user, body=nothing)
    rig.wait(LASTS_SECONDS)
    rig.pool.restore()
    return user.rpartition("-")[0]
