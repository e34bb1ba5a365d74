"""Which faults come in which order: every kind once before any comes twice, shuffled by the seed. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random

from faults import (
    broker_faults,
    event_faults,
    hostile_faults,
    key_spray,
    network_faults,
    process_faults,
    sabotage,
    worker_faults,
)
from faults.rig import Rig

#: Does one fault, undoes it, and returns what exactly it did. Raises when it could not.
Fault = Callable[[Rig, Random], str]

KINDS: dict[str, Fault] = {
    "daemon-killed": process_faults.daemon_killed,
    "daemon-killed-ack": process_faults.daemon_killed_before_ack,
    "daemon-paused": process_faults.daemon_paused,
    "two-daemons": process_faults.two_daemons,
    "clock-shifted": process_faults.clock_shifted,
    "worker-killed": process_faults.worker_killed,
    "worker-killed-reply": process_faults.worker_killed_between_reply_and_ack,
    "worker-killed-start": process_faults.worker_killed_after_cold_start,
    "worker-forks": worker_faults.forks,
    "worker-stops-and-stays": worker_faults.stops_and_stays,
    "log-flood": worker_faults.floods_its_log,
    "client-killed": process_faults.client_killed,
    "client-killed-publish": process_faults.client_killed_between_publish_and_confirm,
    "broker-restarted": broker_faults.broker_restarted,
    "broker-killed": broker_faults.broker_killed,
    "memory-alarm": broker_faults.memory_alarm,
    "disk-alarm": broker_faults.disk_alarm,
    "queue-deleted": broker_faults.queue_deleted,
    "queue-lost": broker_faults.queue_lost,
    "lock-deleted": broker_faults.lock_deleted,
    "policy-deleted": broker_faults.policy_deleted,
    "binding-deleted": broker_faults.binding_deleted,
    "permission-revoked": broker_faults.permission_revoked,
    "events-stream-away": event_faults.stream_away,
    "events-permission-revoked": event_faults.permission_revoked,
    "activity-exchange-deleted": event_faults.exchange_deleted,
    "hostile-peer": hostile_faults.hostile_peer,
    "cut": network_faults.connections_cut,
    "delayed": network_faults.connections_delayed,
    "half-open": network_faults.connections_half_open,
    "key-spray": key_spray.key_spray,
}
#: Kinds that lose requests on purpose, to show that a loss is seen. Only by name, never by chance.
SABOTAGE: dict[str, Fault] = {"theft": sabotage.theft}


def order(kinds: Sequence[str], random: Random) -> Iterator[str]:
    """Yield kinds for ever, all of them in each round, never one right after itself where there are others."""
    last = ""
    while True:
        round_ = random.sample(list(kinds), len(kinds))
        if len(round_) > 1 and round_[0] == last:
            round_.append(round_.pop(0))
        yield from round_
        last = round_[-1]
