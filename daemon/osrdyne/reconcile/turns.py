"""Whose turn it is: how many groups are started at once, and how many are exchanged for ones of a new template.

Times are monotonic seconds. A turn ends when a worker shows life, and after `limits.start_hold` seconds in any case:
what hangs in the engine holds up others no longer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from osrdyne.drivers.base import Group
from osrdyne.reconcile import group_rules
from osrdyne.reconcile.group_rules import GroupAction, GroupPlan
from osrdyne.settings.daemon import LimitSettings
from osrdyne.state.values import Attempt


class Turns:
    """The starts and exchanges of one session: those that wait, and when those that have their turn began."""

    def __init__(self, limits: LimitSettings) -> None:
        self._most = limits.starts_in_flight
        self._hold = limits.start_hold
        self._waiting: dict[GroupAction, dict[str, GroupPlan]] = {GroupAction.START: {}, GroupAction.EXCHANGE: {}}
        self._starts: dict[str, float] = {}
        self._exchanges: dict[str, float] = {}

    def wait(self, key: str, plan: GroupPlan) -> bool:
        """Note what is to be done about a key. Returns whether that waits for its turn."""
        for plans in self._waiting.values():
            plans.pop(key, None)
        if plan.action not in self._waiting:
            return False
        self._waiting[plan.action][key] = plan
        return True

    def note(self, key: str, attempt: Attempt, group: Group | None, *, template: str, now: float) -> None:
        """End the turns of a key that what is known of its group ends."""
        if not group_rules.holds_start_slot(attempt, group, hold=self._hold, now=now):
            self._starts.pop(key, None)
        began = self._exchanges.get(key)
        if began is not None and not group_rules.holds_exchange_slot(
            attempt, group, began=began, template=template, hold=self._hold, now=now
        ):
            del self._exchanges[key]

    def failed(self, key: str) -> None:
        """End the turn of a start that failed: it waits for its back-off, and others need not."""
        self._starts.pop(key, None)

    def take(self, now: float, *, has_failed: Callable[[str], bool]) -> list[tuple[str, GroupPlan]]:
        """Return the keys whose turn begins now, and what to do: first starts, those that never failed before others.

        Exchanges come last: they take workers from keys that are served.
        """
        taken: list[tuple[str, GroupPlan]] = []
        starts, exchanges = self._waiting[GroupAction.START], self._waiting[GroupAction.EXCHANGE]
        for key in sorted(starts, key=has_failed):
            if len(self._current(self._starts, now)) >= self._most:
                return taken
            self._starts[key] = now
            taken.append((key, starts.pop(key)))
        for key in list(exchanges):
            current = self._current(self._starts, now) | self._current(self._exchanges, now)
            if len(current - {key}) >= self._most:
                return taken
            self._exchanges[key] = now
            taken.append((key, exchanges.pop(key)))
        return taken

    @property
    def outdated(self) -> int:
        """How many groups wait to be exchanged."""
        return len(self._waiting[GroupAction.EXCHANGE])

    def _current(self, began: Mapping[str, float], now: float) -> set[str]:
        return {key for key, at in began.items() if now < at + self._hold}
