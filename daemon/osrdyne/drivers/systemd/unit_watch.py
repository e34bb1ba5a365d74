"""The last observation of each unit, and the runs that the driver asked systemd to stop.

Gets every observation (signal, listing or query), and reports each event once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from osrdyne.drivers.systemd.manager import ListedUnit
from osrdyne.drivers.systemd.snapshot import NEW, Snapshot, UnitEvent, event

#: In place of the id of a run: whichever run ends next.
_ANY_RUN = ""


class UnitWatch:
    """The units of one driver, by the names of their instances. `on_event` is called once for each event."""

    def __init__(self, on_event: Callable[[str, UnitEvent], None]) -> None:
        self._on_event = on_event
        self._seen: dict[str, Snapshot] = {}
        #: The last settled observation of each. Events lie between two of these.
        self._settled: dict[str, Snapshot] = {}
        #: By name, the run that systemd was asked to stop.
        self._asked_to_stop: dict[str, str] = {}

    def observe(self, name: str, properties: Mapping[str, Any]) -> Snapshot:
        """Note what systemd answered of a unit, and report events since the last observation. Return what is known."""
        after = self._seen[name] = self._seen.get(name, Snapshot()).changed(properties)
        if after.settled:
            before, self._settled[name] = self._settled.get(name), after
            # The earlier state of a unit that is seen for the first time is unknown.
            if before is not None:
                self._report(name, before, after)
        return after

    def observe_signal(self, name: str, properties: Mapping[str, Any]) -> None:
        """Note a change that systemd signalled, like `observe`. A unit without an earlier observation is new."""
        if name not in self._seen:
            self._seen[name] = self._settled[name] = NEW
        self.observe(name, properties)

    def note_asked_to_stop(self, name: str) -> None:
        """Note that systemd was asked to stop the run that was seen last."""
        self._asked_to_stop[name] = self._seen[name].invocation

    def is_asked_to_stop(self, name: str) -> bool:
        """Return whether systemd was asked to stop the run that was seen last."""
        return self._was_asked_to_stop(name, self._seen.get(name, Snapshot()))

    def observe_listed(self, name: str, listed: ListedUnit) -> bool:
        """Note a unit of a listing. False when a signal was missed, so that `observe` must have its properties."""
        if name in self._seen:
            return self._seen[name].gone == Snapshot(listed.active, listed.sub, int(bool(listed.job))).gone
        found = self._seen[name] = self._settled[name] = Snapshot(listed.active, listed.sub)
        if found.stop_requested:
            # Assume that a former daemon asked for it.
            self._asked_to_stop[name] = _ANY_RUN
        return True

    def missing_from(self, listed: Mapping[str, ListedUnit]) -> list[str]:
        """Return the units that were there when they were seen last, and are missing from this listing."""
        return [name for name, seen in self._seen.items() if not seen.gone and name not in listed]

    def removed(self, name: str) -> None:
        """Note that systemd has forgotten a unit."""
        before = self._settled.pop(name, None)
        self._seen.pop(name, None)
        if before is not None and not before.gone:
            self._report(name, before, Snapshot())
        self._asked_to_stop.pop(name, None)

    def _report(self, name: str, before: Snapshot, after: Snapshot) -> None:
        asked = self._was_asked_to_stop(name, before)
        found = event(before, after, asked=asked)
        if after.gone or (asked and after.invocation != before.invocation):
            self._asked_to_stop.pop(name, None)
        if found is not None:
            self._on_event(name, found)

    def _was_asked_to_stop(self, name: str, seen: Snapshot) -> bool:
        return self._asked_to_stop.get(name) in (_ANY_RUN, seen.invocation)
