"""A pool on a real broker whose workers an engine runs: what the pools of all engines have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from testbed.pool import DaemonProcess, Pool

#: Where our packages are, and what stands in their root.
ROOT = Path(__file__).parents[3]


class EnginePool(ABC):
    """A pool and the daemons that follow each other in it. `close` ends the daemons and removes the pool's users."""

    def __init__(self, pool: Pool, directory: Path) -> None:
        self.pool, self.directory = pool, directory
        self.daemons: list[DaemonProcess] = []

    @abstractmethod
    def driver(self, directory: Path) -> dict[str, Any]:
        """Returns the table `driver` of the settings of a daemon in this directory."""

    def daemon(self, **tables: Any) -> DaemonProcess:
        """Starts the next daemon and waits until it leads."""
        directory = self.directory / f"daemon-{len(self.daemons)}"
        made = DaemonProcess.of(self.pool, directory, driver=self.driver(directory), **tables)
        self.daemons.append(made)
        return made.start()

    def close(self) -> None:
        for daemon in self.daemons:
            if daemon.process is not None and daemon.process.poll() is None:
                daemon.stop()
        self.clean_up()
        self.pool.remove_users()

    def clean_up(self) -> None:
        """Removes what the pool left on its engine, once no daemon runs; the subject removes the groups."""
        return  # most engines keep nothing else
