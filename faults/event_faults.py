"""Faults of what activity events need: the stream, the rights to it, the exchange. Requests must not notice them.

While such a fault lasts, no key in use may be unbound: the counts of its queue say that it is in use.
"""

from __future__ import annotations

import contextlib
import time
import urllib.error
from random import Random

from faults import timing
from faults.rig import Rig
from testbed import lost_events

#: Seconds for which such a fault lasts: twice as long as a key without activity stays bound.
LASTS = 2 * timing.UNBIND_DELAY


def stream_away(rig: Rig, random: Random) -> str:
    """The broker does not find the stream, and ends the connection of each publisher."""
    with lost_events.stream_away(rig.pool):
        return _last_without_events(rig, "506")


def permission_revoked(rig: Rig, random: Random) -> str:
    """Neither daemon nor workers may publish events, and the daemon may not consume them."""
    with lost_events.rights_revoked(rig.pool):
        return _last_without_events(rig, "ACCESS_REFUSED")


def exchange_deleted(rig: Rig, random: Random) -> str:
    """There is no exchange to which events could be published."""
    with lost_events.exchange_deleted(rig.pool):
        return _last_without_events(rig, "NOT_FOUND")


def _last_without_events(rig: Rig, reason: str) -> str:
    """Let a fault last, and return what was seen of it. Raises AssertionError where a key in use was unbound.

    `reason` is what the daemon's log must say of its events.
    """
    # The keys may just have been started.
    rig.until_true(lambda: not rig.deliveries("forwarded", since=time.monotonic() - 1.0), what="keys that are bound")
    closed, began = _close_event_connections(rig), time.monotonic()
    rig.last(LASTS)
    # A request of a bound key goes to its queue without the daemon.
    forwarded = rig.deliveries("forwarded", since=began)
    assert not forwarded, f"keys in use were unbound {len(forwarded)} times"
    rig.until_true(
        lambda: any(reason in str(line) and "events" in line["message"] for line in rig.leader.lines()),
        what=f"{reason} in the daemon's log",
    )
    return f"{closed} connections for events had to connect again"


def _close_event_connections(rig: Rig) -> int:
    """Close the connections of daemon and workers that carry events: an old channel notices nothing of most faults."""
    names = {
        one["name"]
        for one in rig.broker.management.get("connections")
        if str(one.get("client_properties", {}).get("connection_name", "")).endswith((", events", ", activity"))
    }
    for name in names:
        with contextlib.suppress(urllib.error.HTTPError):  # it is closed already
            rig.broker.management.delete("connections", name)
    return len(names)
