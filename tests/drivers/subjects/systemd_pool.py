"""A pool on a real broker whose workers are units: what the whole daemon needs beside systemd."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil

from testbed.pool import DaemonProcess, Pool
from testbed.systemd import PACKAGES, ROOT
from tests.drivers.subjects.systemd import SystemdSubject

#: A worker that does what a request says.
SCRIPTED = "/usr/bin/python3 -B -m testbed.scripted_worker"
#: A worker that only answers, and is small.
MINIMAL = f"/usr/bin/python3 -I -S -E {ROOT}/testbed/minimal_worker.py"


class UnitPool:
    """A pool of scripted workers. `close` ends the daemons; the groups are the subject's to clean up."""

    def __init__(self, units: SystemdSubject, pool: Pool, directory: Path) -> None:
        self.units, self.pool = units, pool
        self._directory = directory
        self._daemons: list[DaemonProcess] = []
        self.declare()

    def declare(self, version: str = "1", command: str = SCRIPTED) -> None:
        """Installs the template unit."""
        path = f"Environment=PYTHONPATH={ROOT}:{PACKAGES}"
        self.units.install(path, f"Environment=VERSION={version}", "TimeoutStopSec=60", command=command)

    def daemon(self, **tables: Any) -> DaemonProcess:
        """Starts the next daemon and waits until it leads."""
        place = self.units.place
        driver: dict[str, Any] = {
            "kind": "systemd",
            "unit": place.unit,
            "environment_directory": str(place.environment_directory),
            "bus_address": place.bus_address,
        }
        directory = self._directory / f"daemon-{len(self._daemons)}"
        made = DaemonProcess.of(self.pool, directory, driver=driver, **tables)
        made.settings["driver"]["worker_amqp_uri_file"] = str(directory / "worker.uri")
        self._daemons.append(made)
        return made.start()

    def workers(self, key: str) -> list[psutil.Process]:
        return self.units.processes(self.units.unit_of(key))

    def close(self) -> None:
        for daemon in self._daemons:
            if daemon.process is not None and daemon.process.poll() is None:
                daemon.stop()
        self.pool.remove_users()
