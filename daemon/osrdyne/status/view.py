"""The view of a pool that `/status` and `osrdyne status` show: a pure function of the shared state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from osrdyne.drivers.base import GroupState
from osrdyne.state.pool import PoolState
from osrdyne.state.tracker import Status
from osrdyne.state.values import Phase

#: `idle` is unbound: the next request is a cold start. `unserved` has had a consumer, and has none.
STATES = ("starting", "ready", "unserved", "failed", "idle", "draining", "stopping")

_LOST = "the broker has lost this queue; it is created again within seconds"


def keys_view(state: PoolState, *, owns_workers: bool, late: float, now: float) -> list[dict[str, Any]]:
    """Return what is known of each key that has a target, a queue or a group, sorted by key.

    Durations are in seconds; None where unknown or not applicable. `late`: how late counts may be.
    """
    keys = {*state.tracker.wanted, *state.queues, *state.groups}
    return [_key_view(state, key, owns_workers=owns_workers, late=late, now=now) for key in sorted(keys)]


def _key_view(state: PoolState, key: str, *, owns_workers: bool, late: float, now: float) -> dict[str, Any]:
    wanted, queue = state.tracker.wanted.get(key), state.queues.get(key)
    group, attempt, totals = state.groups.get(key), state.groups.attempt(key), state.counts.totals.get(key)
    lost, remade = _LOST if key in state.lost.evidence.suspects else None, state.lost.remade.get(key)
    error = lost or (queue.error if queue else None) or attempt.error
    left = max(0.0, wanted.until - now) if wanted else None
    return {
        "key": key,
        # One of `STATES`.
        "state": _state_name(state, key, owns_workers=owns_workers, late=late),
        # Messages and consumers; the document's `counts_age` says how old these counts are.
        "ready": totals.ready if totals else None,
        "unacknowledged": totals.unacknowledged if totals else None,
        "consumers": totals.consumers if totals else None,
        # Workers that the driver runs; None when the driver runs none (noop).
        "workers": (group.workers if group else 0) if owns_workers else None,
        "last_error": error,
        "unbinds_in": left if wanted and wanted.status is Status.ACTIVE else None,
        "stops_in": left if wanted and wanted.status is Status.UNBOUND else None,
        # Seconds since its queue was created again because the broker had lost it.
        "queue_remade_ago": None if remade is None else max(0.0, now - remade),
    }


def _state_name(state: PoolState, key: str, *, owns_workers: bool, late: float) -> str:
    wanted, queue = state.tracker.wanted.get(key), state.queues.get(key)
    group = state.groups.get(key)
    if group is not None and group.state is GroupState.STOPPING:
        return "stopping"
    if wanted is None:
        return "draining"
    if key in state.lost.evidence.suspects:
        return "failed"
    if (queue is not None and queue.error) or (group is None and state.groups.attempt(key).failures):
        return "failed"
    if state.refused_until(key) is not None:
        return "failed"
    if wanted.status is Status.UNBOUND:
        return "idle"
    if queue is None or queue.phase is not Phase.BOUND:
        return "starting"
    if group is None and owns_workers:
        return "starting"
    signs = state.signs(key)
    if signs.is_served(late=late):
        return "ready"
    runs = group is None or group.state is GroupState.RUNNING
    return "unserved" if runs and signs.was_served(late=late) else "starting"


def document(
    state: PoolState, *, instance: str, phase: str, detail: str | None, late: float, **rest: Any
) -> dict[str, Any]:
    """Return the whole status as JSON-ready values. `late` is how old the broker's own counts may be, in seconds.

    `queues` is the number of messages in the pool's own queues, None where unknown. `dropped` counts requests without a
    caller that the inventory dropped since this daemon began. `counts_age` is the greatest age of
    these and of all keys' counts in seconds, None while there are none. `alarm` names the resources of a broker alarm,
    and `uncounted` says why the management API does not answer. `warnings` are sentences for a person; the daemon works
    on. `refused` counts the requests whose key was not woken, by reason, since the daemon started.
    `queues_with_other_consumers` are queues of the daemon from which others take messages. `static_queues_lost` says
    what to do about each queue that the broker lost. A daemon that stands by shows no key and no such queue, because
    its knowledge of them is old.
    """
    names, counts, owns_workers, stands_by = state.names, state.counts, rest.pop("owns_workers"), phase == "standby"
    keys = [] if stands_by else keys_view(state, owns_workers=owns_workers, late=late, now=state.clock())
    phase, detail = with_lost(state, phase, detail)
    return {
        "pool": names.pool,
        "instance": instance,
        "state": phase,
        "detail": detail,
        "generation": state.tracker.generation,
        "alarm": counts.alarm,
        "uncounted": counts.uncounted,
        "dropped": state.tally.dropped,
        "queues_with_other_consumers": sorted(counts.listeners),
        "queues": {name: counts.depths.get(name) for name in names.counted},
        "warnings": _warnings(state),
        "refused": dict(state.tally.refused),
        "counts_age": None if stands_by or counts.counted_at is None else state.clock() - counts.counted_at + late,
        "static_queues_lost": {} if stands_by else state.lost.static,
        "keys": keys,
        # How workers ended, those of the key that ended last at the end; also of keys that have nothing any more.
        "ends": [] if stands_by else [fact.shown(state.clock()) for fact in state.ends.latest()],
        **rest,
    }


def _warnings(state: PoolState) -> list[str]:
    names, depths, dropped = state.names, state.counts.depths, state.tally.dropped
    parked, waiting = depths.get(names.parked_queue), depths.get(names.waiting_queue)
    said = []
    if waiting:
        said.append(f"{names.waiting_queue} holds {waiting} request(s) for which {names.poison_queue} has no room")
    if dropped:
        where = f"dropped from {names.unanswered_queue}, the oldest first, since this daemon began"
        said.append(f"{dropped} request(s) without a caller were {where}")
    if parked:
        said.append(f"{names.parked_queue} holds {parked} message(s) that could not be delivered, and are not answered")
    if state.groups.outdated:
        said.append(f"{state.groups.outdated} group(s) go on with the former template until their turn to be exchanged")
    said += [f"{queue} {problem}" for queue, problem in state.counts.listeners.items()]
    return said


def with_lost(state: PoolState, phase: str, detail: str | None) -> tuple[str, str | None]:
    """Return phase and detail as they are shown; they name static queues that the broker lost.

    A daemon that prepares waits for the lost queues that it consumes; one that leads goes on without the others.
    """
    if not state.lost.static or phase not in ("preparing", "leading"):
        return phase, detail
    reason = "; ".join(f"queue {name}: {problem}" for name, problem in state.lost.static.items())
    return "waiting" if phase == "preparing" else phase, reason


def not_ready(state: PoolState, phase: str, detail: str | None) -> str | None:
    """Return why a daemon cannot work; None when it leads or stands by, no static queue is lost, and no alarm is on."""
    phase, detail = with_lost(state, phase, detail)
    if phase == "leading" and detail is None and state.counts.alarm is not None:
        detail = f"the broker takes no messages in its alarm ({state.counts.alarm})"
    if phase in ("leading", "standby") and detail is None:
        return None
    return f"{phase}: {detail}" if detail else phase


def keys_by_state(document: Mapping[str, Any]) -> dict[str, int]:
    """Return how many keys of a status document are in each state; a state without keys has 0."""
    counted = Counter(row["state"] for row in document["keys"])
    return {state: counted[state] for state in STATES}
