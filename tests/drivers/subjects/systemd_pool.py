"""A pool on a real broker whose workers are units: what the whole daemon needs beside systemd."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil

from testbed import ROOT
from testbed.pool import Pool
from testbed.systemd import PACKAGES
from tests.drivers.subjects.engine_pool import EnginePool
from tests.drivers.subjects.systemd import SystemdSubject

#: A worker that does what a request says.
SCRIPTED = "/usr/bin/python3 -B -m testbed.scripted_worker"
#: A worker that only answers, and is small.
MINIMAL = f"/usr/bin/python3 -I -S -E {ROOT}/lab/testbed/minimal_worker.py"


class UnitPool(EnginePool):
    """A pool of scripted workers. `close` ends the daemons; the groups are the subject's to clean up."""

    def __init__(self, units: SystemdSubject, pool: Pool, directory: Path) -> None:
        super().__init__(pool, directory)
        self.units = units
        self.declare()

    def declare(self, version: str = "1", command: str = SCRIPTED) -> None:
        """Installs the template unit."""
        path = f"Environment=PYTHONPATH={ROOT}/lab:{PACKAGES}"
        self.units.install(path, f"Environment=VERSION={version}", "TimeoutStopSec=60", command=command)

    def driver(self, directory: Path) -> dict[str, Any]:
        place = self.units.place
        return {
            "kind": "systemd",
            "unit": place.unit,
            "environment_directory": str(place.environment_directory),
            "bus_address": place.bus_address,
            "worker_amqp_uri_file": str(directory / "worker.uri"),
        }

    def workers(self, key: str) -> list[psutil.Process]:
        return self.units.processes(self.units.unit_of(key))
