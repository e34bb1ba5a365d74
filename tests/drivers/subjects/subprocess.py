"""Driver `subprocess`: the engine is this machine, seen through the records and /proc."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path

import psutil

from osrdyne.drivers.base import Driver
from osrdyne.drivers.subprocess.driver import SubprocessDriver, SubprocessTemplate
from osrdyne_pool.settings import PoolSettings
from osrdyne_protocol import names
from tests.drivers.subjects.base import STUB_WORKER, WORKER_URI, OwningSubject

#: The stub worker, started as fast and as small as can be.
STUB = (sys.executable, "-I", "-S", "-E", str(STUB_WORKER))


def environment_of(pid: int) -> dict[str, str]:
    """Returns a process's environment, which psutil does not: it takes carriage returns for line breaks."""
    variables = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(variable.split("=", 1) for variable in variables if variable)


class SubprocessSubject(OwningSubject):
    """Workers are processes of this machine; what runs is known by what writes to its logs."""

    name = "subprocess"
    heals = False

    def __init__(self, engine: None, directory: Path) -> None:
        super().__init__(engine, directory)
        self.state = directory / "state"
        self._drivers: list[Driver] = []

    def driver(self, *, pool: str | None = None, instance: str = "one", template: str = "a") -> SubprocessDriver:
        return self.driver_of(SubprocessTemplate(STUB, {"TEMPLATE": template}), pool=pool, instance=instance)

    def driver_of(
        self, template: SubprocessTemplate, *, pool: str | None = None, instance: str = "one", uri: str = WORKER_URI
    ) -> SubprocessDriver:
        driver = SubprocessDriver(PoolSettings(pool or self.pool, instance), template, lambda: uri, self.state)
        self._drivers.append(driver)
        return driver

    def record(self, key: str, *, pool: str | None = None, instance: str = "one") -> Path:
        """Returns where the record of a key is, or would be."""
        pool = pool or self.pool
        home = names.engine_name(pool, instance, "")
        return self.state / home / f"{names.engine_name(pool, instance, key)}.json"

    def log(self, key: str) -> Path:
        record = self.record(key)
        return record.parent / "logs" / f"{record.stem}.log"

    def process(self, key: str, *, pool: str | None = None, instance: str = "one") -> psutil.Process:
        """Returns the process that a key's record names."""
        return psutil.Process(json.loads(self.record(key, pool=pool, instance=instance).read_bytes())["pid"])

    async def environments(self, key: str, *, pool: str | None = None, instance: str = "one") -> list[dict[str, str]]:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, psutil.NoSuchProcess):
            process = self.process(key, pool=pool, instance=instance)
            while process.status() != psutil.STATUS_ZOMBIE:
                # Empty for some microseconds after exec, which is when a start returns.
                if found := environment_of(process.pid):
                    return [found]
        return []

    async def workers(self, key: str, *, pool: str | None = None, instance: str = "one") -> list[str]:
        with contextlib.suppress(FileNotFoundError, psutil.NoSuchProcess):
            process = self.process(key, pool=pool, instance=instance)
            if process.status() != psutil.STATUS_ZOMBIE:
                return [f"{process.pid} of {process.create_time()}"]
        return []

    async def kill(self, key: str) -> None:
        self.process(key).kill()

    async def output(self, key: str) -> str:
        return self.log(key).read_text() if self.log(key).exists() else ""

    async def inspectable(self) -> bytes:
        files = [path.read_bytes() for path in self.state.rglob("*") if path.is_file()]
        commands = [" ".join(process.cmdline()).encode() for process in self.running()]
        return b"\n".join(files + commands)

    async def clean_up(self) -> None:
        for driver in self._drivers:
            await driver.close()
        left = self.running()
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=10)

    def running(self) -> list[psutil.Process]:
        """Returns all whose output goes to a log here, so that even a worker without a record is found."""
        outputs = {pid: Path(f"/proc/{pid}/fd/1") for pid in psutil.pids()}
        found, pipes = [], set()
        for pid, output in outputs.items():
            with contextlib.suppress(OSError):
                if output.readlink().is_relative_to(self.state):
                    pipes.add(output.with_name("0").readlink())
                    found.append(pid)
        for pid, output in outputs.items():
            with contextlib.suppress(OSError):
                if output.readlink() in pipes:
                    found.append(pid)
        return [psutil.Process(pid) for pid in found if psutil.pid_exists(pid)]
