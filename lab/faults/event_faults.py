"""Faults of what activity events need: the stream, the rights to it, the exchange. Requests must not notice them.

While such a fault lasts, no key in use may be unbound: the counts of its queue say that it is in use.
"""

from __future__ import annotations

import contextlib
import time
from random import Random

from faults import load, timing
from faults.rig import Rig
from osrdyne_pool.broker.management import ManagementRefused
from testbed import lost_events

#: Seconds for which such a fault lasts: twice as long as a key without activity stays bound.
LASTS_SECONDS = 2 * timing.UNBIND_DELAY_SECONDS


def stream_away(rig: Rig, random: Random) -> str:
    """The broker does not find the stream, and ends the connection of each publisher."""
    return _without_events(rig, lost_events.stream_away(rig.pool), "506")


def permission_revoked(rig: Rig, random: Random) -> str:
    """Neither daemon nor workers may publish events, and the daemon may not consume them."""
    return _without_events(rig, lost_events.rights_revoked(rig.pool), "ACCESS_REFUSED")


def exchange_deleted(rig: Rig, random: Random) -> str:
    """There is no exchange to which events could be published."""
    return _without_events(rig, lost_events.exchange_deleted(rig.pool), "NOT_FOUND")


def _without_events(rig: Rig, fault: contextlib.AbstractContextManager[None], reason: str) -> str:
    """Let a fault last, and return what was seen of it. Raises AssertionError where a key in use was unbound.

    `reason` is what the daemon's log must say of its events.
    """
    _until_in_use(rig)
    with fault:
        began, logged, closed = time.monotonic(), len(rig.leader.lines()), _close_event_connections(rig)
        rig.wait(LASTS_SECONDS)

        def noticed() -> bool:
            nonlocal closed
            if any(reason in str(line) and "events" in line["message"] for line in rig.leader.lines()[logged:]):
                return True
            # The management API lists a new connection late, so some may have been left out.
            closed += _close_event_connections(rig)
            return False

        rig.until_true(noticed, what=f"{reason} in the daemon's log")
        # A request of a bound key goes to its queue without the daemon.
        forwarded = rig.deliveries("forwarded", since=began)
    assert not forwarded, f"keys in use were unbound {len(forwarded)} times"
    return f"{closed} connections for events had to connect again"


def _until_in_use(rig: Rig) -> None:
    """Wait until the worker of every warm key runs: a key that is just being started has requests of before to come."""
    began = time.monotonic()

    def missing() -> set[str]:
        return set(load.WARM) - rig.read().keys_answered_since(began)

    rig.until_true(lambda: not missing(), within=60.0, what="an answer of every warm key")
    rig.until_true(lambda: not rig.deliveries("forwarded", since=time.monotonic() - 1.0), what="keys that are bound")


def _close_event_connections(rig: Rig) -> int:
    """Close the connections of daemon and workers that carry events: an old channel notices nothing of most faults."""
    names = {
        connection["name"]
        for connection in rig.broker.management.get("connections")
        if str(connection.get("client_properties", {}).get("connection_name", "")).endswith((", events", ", activity"))
    }
    for name in names:
        with contextlib.suppress(ManagementRefused):  # it is closed already
            rig.broker.management.delete("connections", name)
    return len(names)
