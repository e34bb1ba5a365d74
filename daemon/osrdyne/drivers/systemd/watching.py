"""What is known of each unit from one observation to the next, and which runs the driver had asked to end.

Gets every observation (signal, listing or query), and reports each event once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from osrdyne.drivers.systemd.manager import ListedUnit
from osrdyne.drivers.systemd.snapshot import NEW, Snapshot, UnitEvent, event

#: Stands for whichever run it is that ends.
_ANY = ""


class UnitWatch:
    """The units of one driver, by the names of their instances. `on_event` is called once for each event."""

    def __init__(self, on_event: Callable[[str, UnitEvent], None]) -> None:
        self._on_event = on_event
        self._seen: dict[str, Snapshot] = {}
        #: What was seen last that was settled.
        self._settled: dict[str, Snapshot] = {}
        #: Name to the run that was asked to end.
        self._asked: dict[str, str] = {}

    def observe(self, name: str, properties: Mapping[str, Any]) -> Snapshot:
        """Note a unit's present properties, and report events since the last observation. Returns all that is known."""
        after = self._seen[name] = self._seen.get(name, Snapshot()).changed(properties)
        if after.settled:
            before, self._settled[name] = self._settled.get(name), after
            # The earlier state of a unit that is seen for the first time is unknown.
            if before is not None:
                self._judge(name, before, after)
        return after

    def hear(self, name: str, properties: Mapping[str, Any]) -> None:
        """Do the same for a change: a unit that was unknown until now did not exist."""
        if name not in self._seen:
            self._seen[name] = self._settled[name] = NEW
        self.observe(name, properties)

    def ask(self, name: str) -> None:
        """Take note that the run that was seen last was asked to end."""
        self._asked[name] = self._seen[name].invocation

    def is_asked(self, name: str) -> bool:
        """Return whether the run that was seen last was asked to end."""
        return self._asked.get(name) in (_ANY, self._seen.get(name, Snapshot()).invocation)

    def adopt(self, name: str, listed: ListedUnit) -> bool:
        """Take note of a unit in a listing; False when it is not as it was seen last, so that systemd must be asked."""
        if name in self._seen:
            return self._seen[name].gone == Snapshot(listed.active, listed.sub, int(bool(listed.job))).gone
        found = self._seen[name] = self._settled[name] = Snapshot(listed.active, listed.sub)
        if found.stop_requested:
            # Assume that a former daemon asked for it.
            self._asked[name] = _ANY
        return True

    def not_listed(self, listed: Mapping[str, ListedUnit]) -> list[str]:
        """Return the units that were there when they were seen last, and are in no listing any more."""
        return [name for name, seen in self._seen.items() if not seen.gone and name not in listed]

    def removed(self, name: str) -> None:
        """Take note that systemd has forgotten a unit."""
        before = self._settled.pop(name, None)
        self._seen.pop(name, None)
        if before is not None and not before.gone:
            self._judge(name, before, Snapshot())
        self._asked.pop(name, None)

    def _judge(self, name: str, before: Snapshot, after: Snapshot) -> None:
        asked = self._asked.get(name) in (_ANY, before.invocation)
        found = event(before, after, asked=asked)
        if after.gone or (asked and after.invocation != before.invocation):
            self._asked.pop(name, None)
        if found is not None:
            self._on_event(name, found)
