"""Driver `noop`: there is no engine."""

from __future__ import annotations

from osrdyne.drivers.base import Driver
from osrdyne.drivers.noop import NoopDriver
from tests.drivers.subjects.base import Subject


class NoopSubject(Subject):
    """Nothing is started, so nothing is to be cleaned up."""

    name = "noop"
    owns_workers = False

    def driver(self, *, pool: str | None = None, instance: str = "one", template: str = "a") -> Driver:
        return NoopDriver()

    async def clean_up(self) -> None:
        pass
