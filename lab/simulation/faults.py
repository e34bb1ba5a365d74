"""Lets the faults of a scenario happen: each begins at its time and is over at its end."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextvars import Context
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from simulation.model.timing import ConfirmTiming, Range
from simulation.scenario import DOWN_SECONDS, YOUNG_SECONDS, Fault

if TYPE_CHECKING:
    from simulation.world import World

#: What begins, and what ends it; None where it is over by itself.
Undo = Callable[[], object] | None


def schedule(world: World, fault: Fault) -> None:
    """Let a fault happen at its time."""
    world.loop.call_at(fault.at, _begin, world, fault, context=Context())


def _begin(world: World, fault: Fault) -> None:
    world.note("fault begins", fault.what, fault.key, fault.number)
    undo = _FAULTS[fault.what](world, fault)
    if undo is not None:
        world.loop.call_at(max(fault.until, world.loop.time()), _end, world, fault, undo, context=Context())


def _end(world: World, fault: Fault, undo: Callable[[], object]) -> None:
    world.note("fault over", fault.what, fault.key)
    undo()


def _daemon_killed(world: World, fault: Fault) -> Undo:
    daemon = world.daemons[fault.number % len(world.daemons)]
    if fault.number % 4 == 0:
        world.killed(daemon)
    else:
        daemon.after(fault.number, "kill")
    return None


def _daemon_cut(world: World, fault: Fault) -> Undo:
    daemon = world.daemons[fault.number % len(world.daemons)]
    if fault.number % 4 == 0:
        which = ("", ".orphans", ".dead letters")[fault.number // 4 % 3]
        _on_connection(world, world.broker.cut, f"{daemon.connection}{which}")
    else:
        daemon.after(fault.number, "cut")
    return None


def _on_connection(world: World, act: Callable[[str], None], name: str | None) -> None:
    if name is not None and name in world.broker.connection_names():
        act(name)


def _daemon_half_open(world: World, fault: Fault) -> Undo:
    _on_connection(world, world.broker.half_open, world.daemons[fault.number % len(world.daemons)].connection)
    return None


def _daemon_stands_still(world: World, fault: Fault) -> Undo:
    """Stop a daemon's process, and let it go on; the broker hears no heartbeats of it meanwhile."""
    daemon = world.daemons[fault.number % len(world.daemons)]
    name, beat = daemon.connection, world.daemon_settings.broker.heartbeat
    daemon.stand_still()

    def unheard() -> None:
        if daemon.stands_still and name == daemon.connection:
            for connection in world.broker.connection_names():
                if connection == name or connection.startswith(f"{name}."):
                    world.broker.cut(connection)

    world.loop.call_later(world.rng.uniform(2 * beat, 3 * beat), unheard, context=Context())
    return daemon.go_on


def _client_cut(world: World, fault: Fault) -> Undo:
    _on_connection(world, world.broker.cut, world.clients[fault.number % len(world.clients)].connection)
    return None


def _of_worker(world: World, fault: Fault) -> str | None:
    group = world.engine.running.get(fault.key)
    return group.worker.connection if group is not None else None


def _worker_cut(world: World, fault: Fault) -> Undo:
    _on_connection(world, world.broker.cut, _of_worker(world, fault))
    return None


def _worker_half_open(world: World, fault: Fault) -> Undo:
    _on_connection(world, world.broker.half_open, _of_worker(world, fault))
    return None


def _worker_killed(world: World, fault: Fault) -> Undo:
    world.engine.kill(fault.key)
    return None


def _worker_stays(world: World, fault: Fault) -> Undo:
    """A worker stops by itself, says so or does not, and something keeps its process."""
    group = world.engine.running.get(fault.key)
    if group is not None and not group.stopping:
        group.worker.stay(says_so=bool(fault.number % 2))
    return None


def _broker_down(world: World, fault: Fault) -> Undo:
    if not world.broker.running:
        return None
    world.broker.stop()
    return world.broker.start


def _queues_lost(world: World, fault: Fault) -> Undo:
    """Kill the broker a moment after a request queue was declared: it loses all that are young."""
    broker = world.broker
    # Half of the time while the first forward to the new queue is under way.
    wait = fault.number / 3000 if fault.number % 2 else fault.number / 60
    kept = {world.names.request_queue(key.key) for key in world.scenario.keys if key.kept}

    def can_be_lost(name: str) -> bool:
        ours = name.startswith(world.names.request_queue_prefix) and name not in kept
        return ours and broker.queues[name].kind == "quorum"

    def on_declared(name: str) -> None:
        if on_declared in broker.on_declared and can_be_lost(name):
            broker.on_declared.remove(on_declared)
            world.loop.call_later(wait, kill, context=Context())

    def kill() -> None:
        if broker.running:
            youngest = broker.now - YOUNG_SECONDS
            lose = [name for name, queue in broker.queues.items() if can_be_lost(name) and queue.made_at >= youngest]
            broker.kill_and_start(lose=lose, down=world.rng.uniform(*DOWN_SECONDS))

    def undo() -> None:
        if on_declared in broker.on_declared:
            broker.on_declared.remove(on_declared)

    broker.on_declared.append(on_declared)
    return undo


def _alarm(world: World, fault: Fault) -> Undo:
    world.broker.alarm(True)
    return partial(world.broker.alarm, False)


def _confirms_late(world: World, fault: Fault) -> Undo:
    confirming = world.broker.confirming
    confirming.delay = Range(0.0, 3.0)

    def undo() -> None:
        confirming.delay = ConfirmTiming().delay

    return undo


def _confirms_never(world: World, fault: Fault) -> Undo:
    confirming = world.broker.confirming
    confirming.never = 0.3

    def undo() -> None:
        confirming.never = 0.0

    return undo


def _publishes_refused(world: World, fault: Fault) -> Undo:
    confirming = world.broker.confirming
    confirming.refuse = 0.4

    def undo() -> None:
        confirming.refuse = 0.0

    return undo


def _management_away(world: World, fault: Fault) -> Undo:
    return _management(world, "away")


def _management_hangs(world: World, fault: Fault) -> Undo:
    return _management(world, "hangs")


def _queues_uncounted(world: World, fault: Fault) -> Undo:
    return _management(world, "uncounted")


def _management(world: World, what: str) -> Undo:
    world.management_fails(what, True)
    return partial(world.management_fails, what, False)


def _policy_removed(world: World, fault: Fault) -> Undo:
    declared = world.topology.policies[fault.number % len(world.topology.policies)]
    if declared.name in world.removed:
        return None
    world.removed.add(declared.name)
    world.broker.remove_policy(declared.name)

    def undo() -> None:
        world.removed.discard(declared.name)
        world.broker.put_policy(declared)

    return undo


def _queue_deleted(world: World, fault: Fault) -> Undo:
    world.broker.delete_queue(world.names.request_queue(fault.key))
    return None


def _static_queue_deleted(world: World, fault: Fault) -> Undo:
    names = world.names
    chosen = (names.orphan_queue, names.dead_letter_queue, names.activity_queue)
    world.broker.delete_queue(chosen[fault.number % len(chosen)])
    return partial(world.broker.apply, world.topology)


def _stray_activity(world: World, fault: Fault) -> Undo:
    world.clients[0].tell("ghost")
    return None


def _poison_deleted(world: World, fault: Fault) -> Undo:
    world.broker.delete_queue(world.names.poison_queue)
    return partial(world.broker.apply, world.topology)


def _activity_lost(world: World, fault: Fault) -> Undo:
    world.broker.unbind_queue(world.names.activity_queue, world.names.activity_exchange, "")
    return partial(world.broker.apply, world.topology)


def _activity_queue_deleted(world: World, fault: Fault) -> Undo:
    world.broker.delete_queue(world.names.activity_queue)
    return partial(world.broker.apply, world.topology)


def _activity_exchange_deleted(world: World, fault: Fault) -> Undo:
    world.broker.delete_exchange(world.names.activity_exchange)
    return partial(world.broker.apply, world.topology)


def _activity_revoked(world: World, fault: Fault) -> Undo:
    """Take the right to publish events from workers, and that to publish and consume them from the daemon."""
    exchange, queue = re.escape(world.names.activity_exchange), re.escape(world.names.activity_queue)
    users = (world.users.worker, world.users.daemon)
    declared = [permission for permission in world.topology.permissions if permission.user in users]
    for known in declared:
        world.broker.grant(
            replace(known, write=f"^(?!{exchange}$)(?:{known.write})", read=f"^(?!{queue}$)(?:{known.read})")
        )

    def undo() -> None:
        for known in declared:
            world.broker.grant(known)

    return undo


def _queue_unbound(world: World, fault: Fault) -> Undo:
    world.broker.unbind_queue(world.names.request_queue(fault.key), world.names.request_exchange, fault.key)
    return None


def _lock_deleted(world: World, fault: Fault) -> Undo:
    world.broker.delete_queue(world.names.leader_queue)
    return None


def _daemon_revoked(world: World, fault: Fault) -> Undo:
    return _revoked(world, "daemon")


def _worker_revoked(world: World, fault: Fault) -> Undo:
    return _revoked(world, "worker")


def _revoked(world: World, role: str) -> Undo:
    (declared,) = [
        permission for permission in world.topology.permissions if permission.user == getattr(world.users, role)
    ]
    world.broker.grant(replace(declared, configure="^$", write="^$", read="^$"))
    return partial(world.broker.grant, declared)


def _driver_refuses(world: World, fault: Fault) -> Undo:
    return _engine(world, "refuses")


def _driver_blind(world: World, fault: Fault) -> Undo:
    return _engine(world, "blind")


def _engine(world: World, what: str) -> Undo:
    setattr(world.engine, what, True)
    return partial(setattr, world.engine, what, False)


def _clock_jumps(world: World, fault: Fault) -> Undo:
    world.daemons[fault.number % len(world.daemons)].clock.skew += fault.jump
    return None


_FAULTS: dict[str, Callable[[World, Fault], Undo]] = {
    "daemon killed": _daemon_killed,
    "daemon cut": _daemon_cut,
    "daemon half open": _daemon_half_open,
    "daemon stands still": _daemon_stands_still,
    "client cut": _client_cut,
    "worker cut": _worker_cut,
    "worker half open": _worker_half_open,
    "worker killed": _worker_killed,
    "worker stays": _worker_stays,
    "broker down": _broker_down,
    "queues lost": _queues_lost,
    "alarm": _alarm,
    "confirms late": _confirms_late,
    "confirms never": _confirms_never,
    "publishes refused": _publishes_refused,
    "management away": _management_away,
    "management hangs": _management_hangs,
    "queues uncounted": _queues_uncounted,
    "policy removed": _policy_removed,
    "queue deleted": _queue_deleted,
    "queue unbound": _queue_unbound,
    "static queue deleted": _static_queue_deleted,
    "poison deleted": _poison_deleted,
    "activity lost": _activity_lost,
    "activity queue deleted": _activity_queue_deleted,
    "activity exchange deleted": _activity_exchange_deleted,
    "activity revoked": _activity_revoked,
    "stray activity": _stray_activity,
    "lock deleted": _lock_deleted,
    "daemon revoked": _daemon_revoked,
    "worker revoked": _worker_revoked,
    "driver refuses": _driver_refuses,
    "driver blind": _driver_blind,
    "clock jumps": _clock_jumps,
}
