"""The real daemon with a driver that accepts a start at once and runs nothing.

So what is measured is the daemon up to the call of the driver, and no engine behind it: how long a process, container
or pod takes to start is not the daemon's doing. All else, settings, loops, connection, is as in `osrdyne daemon`.
"""

from __future__ import annotations

import builtins

from osrdyne.drivers.base import Group, GroupState
from osrdyne.drivers.noop import NoopDriver
from osrdyne.drivers.subprocess.settings import SubprocessSettings
from osrdyne_command.program import main


class InstantDriver(NoopDriver):
    """Says that every group it was asked for runs."""

    owns_workers = True
    template = "instant"

    def __init__(self) -> None:
        super().__init__()
        self._keys: set[str] = set()

    async def start(self, key: str) -> None:
        self._keys.add(key)

    async def stop(self, key: str) -> None:
        self._keys.discard(key)

    async def list(self) -> builtins.list[Group]:
        return [Group(key, GroupState.RUNNING, 1, self.template) for key in self._keys]


if __name__ == "__main__":
    # The settings of the measurement name this driver.
    setattr(SubprocessSettings, "open", lambda _settings, _pool: InstantDriver())  # noqa: B010
    main()
