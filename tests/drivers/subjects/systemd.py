"""Driver `systemd`: the engine is PID 1 of a container, whose processes this machine sees as its own."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil

from osrdyne.drivers.base import Driver
from osrdyne.drivers.systemd.driver import SystemdDriver, UnitPlace
from osrdyne_pool.settings import PoolSettings
from osrdyne_protocol import names
from testbed.docker import DockerFailed
from testbed.systemd import Systemd, machine
from tests.drivers.subjects.base import STUB_WORKER, WORKER_URI, OwningSubject
from tests.drivers.subjects.subprocess import environment_of

#: The stub worker, on the machine's own Python.
STUB = f"/usr/bin/python3 -I -S -E {STUB_WORKER}"


class SystemdSubject(OwningSubject):
    """Workers are units of one template; the test's pool has a template of its own."""

    name = "systemd"
    heals = True

    @classmethod
    @contextlib.contextmanager
    def engine(cls) -> Iterator[Systemd]:
        with machine() as made:
            yield made

    def __init__(self, engine: Systemd, directory: Path) -> None:
        super().__init__(engine, directory)
        self.pool = f"echo-{secrets.token_hex(4)}"
        self.machine = engine
        self._drivers: list[Driver] = []

    @property
    def unit(self) -> str:
        """Name of the template unit."""
        return f"osrdyne-{self.pool}@.service"

    @property
    def place(self) -> UnitPlace:
        machine = self.machine
        return UnitPlace(self.unit, self.files, bus_address=machine.bus, journalctl=machine.journalctl)

    @property
    def files(self) -> Path:
        """Directory of environment files."""
        return self.machine.directory / self.pool

    def driver(self, *, pool: str | None = None, instance: str = "one", template: str = "a") -> SystemdDriver:
        self.install(f"Environment=TEMPLATE={template}")
        return self.driver_of(self.place, pool=pool, instance=instance)

    def driver_of(
        self, place: UnitPlace, *, pool: str | None = None, instance: str = "one", uri: str = WORKER_URI
    ) -> SystemdDriver:
        driver = SystemdDriver(PoolSettings(pool or self.pool, instance), place, lambda: uri)
        self._drivers.append(driver)
        return driver

    def install(self, *lines: str, command: str = STUB, unit: tuple[str, ...] = ()) -> None:
        """Installs the template unit, with further lines for its service and its unit, as infrastructure code would."""
        text = "\n".join(
            [
                *("[Unit]", "Description=osrdyne worker %i", "StartLimitBurst=1000", *unit),
                *("[Service]", "Type=exec", f"ExecStart={command}", f"EnvironmentFile={self.files}/%i.env"),
                *("Restart=on-failure", "RestartSec=0.2", "TimeoutStopSec=5", *lines, ""),
            ]
        )
        file = self.machine.units / self.unit
        if not file.exists() or file.read_text() != text:
            file.write_text(text)
            self.machine.run("systemctl", "daemon-reload")

    def unit_of(self, key: str, *, pool: str | None = None, instance: str = "one") -> str:
        return self.place.unit_of(names.engine_name(pool or self.pool, instance, key))

    def processes(self, unit: str) -> list[psutil.Process]:
        """Returns what runs in a unit's control group, the oldest first."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(OSError, psutil.NoSuchProcess):
                if f"/{unit}\n" in Path(f"/proc/{process.pid}/cgroup").read_text():
                    found.append(process)
        return sorted(found, key=lambda process: (process.create_time(), process.pid))

    async def environments(self, key: str, *, pool: str | None = None, instance: str = "one") -> list[dict[str, str]]:
        running = self.processes(self.unit_of(key, pool=pool, instance=instance))
        return [environment_of(process.pid) for process in running[:1]]

    async def workers(self, key: str, *, pool: str | None = None, instance: str = "one") -> list[str]:
        running = self.processes(self.unit_of(key, pool=pool, instance=instance))
        return [f"{process.pid} of {process.create_time()}" for process in running[:1]]

    async def kill(self, key: str) -> None:
        os.kill(self.processes(self.unit_of(key))[0].pid, signal.SIGKILL)

    async def output(self, key: str) -> str:
        return self.machine.run("journalctl", "--quiet", "--output=cat", f"_SYSTEMD_UNIT={self.unit_of(key)}")

    async def inspectable(self) -> bytes:
        every = self.place.unit_of("*")
        shown = [
            self.machine.run("systemctl", verb, "--no-pager", "--all", every)
            for verb in ("show", "status", "list-units")
        ]
        unit = (self.machine.units / self.unit).read_text()
        commands = self.machine.run("ps", "-ww", "-eo", "args")
        journal = self.machine.run("journalctl", "--quiet", "--output=export", "--unit", every)
        return "\n".join([*shown, unit, commands, journal]).encode()

    async def clean_up(self) -> None:
        for driver in self._drivers:
            await driver.close()
        every = self.place.unit_of("*")
        for command in (("kill", "--signal=KILL"), ("stop",), ("reset-failed",)):
            with contextlib.suppress(DockerFailed):  # there is nothing to do it to
                self.machine.run("systemctl", *command, every)
        assert "loaded" not in self.machine.run("systemctl", "list-units", "--all", "--no-legend", every)
        (self.machine.units / self.unit).unlink(missing_ok=True)
