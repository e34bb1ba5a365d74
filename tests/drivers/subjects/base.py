"""The drivers under test, each with its engine, as the conformance suite sees them.

A driver joins the suite by a subclass of `Subject` (of `Owning`, when it owns its workers) in `SUBJECTS`.
Nothing in the suite itself knows an engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

import psutil

from osrdyne.drivers import Change, Driver, Group
from osrdyne.drivers.noop import NoopDriver
from osrdyne.drivers.subprocess import SubprocessDriver, SubprocessTemplate
from osrdyne_protocol import names
from osrdyne_protocol.settings import PoolSettings
from tests.engines.waiting import until_async

#: Credential that every worker is given, and that may show up nowhere but in its environment.
PASSWORD = "pass-word-of-the-workers"
WORKER_URI = f"amqp://worker:{PASSWORD}@broker.invalid/vhost"
#: `stub_worker.py`, started as fast and as small as can be.
STUB = (sys.executable, "-I", "-S", "-E", str(Path(__file__).with_name("stub_worker.py")))


async def listed(driver: Driver) -> dict[str, Group]:
    """Returns the driver's groups by key, and makes sure that no key is listed twice."""
    groups = await driver.list()
    found = {group.key: group for group in groups}
    assert len(found) == len(groups)
    return found


def environment_of(pid: int) -> dict[str, str]:
    """Returns a process's environment, which psutil does not: it takes carriage returns for line breaks."""
    variables = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(variable.split("=", 1) for variable in variables if variable)


async def next_change(driver: Driver) -> Change:
    """Returns the next change of any key."""
    async with asyncio.timeout(20):
        return await anext(aiter(driver.changes()))


async def is_empty(driver: Driver) -> bool:
    """Says whether the driver lists no group."""
    return await driver.list() == []


class Subject(ABC):
    """A driver and an engine of its own; nothing is left of either after `clean_up`."""

    name: ClassVar[str]
    owns_workers: ClassVar[bool]

    @abstractmethod
    def __init__(self, directory: Path) -> None:
        """Prepares an engine; `directory` is empty and the test's own."""

    @abstractmethod
    def driver(self, *, pool: str = "echo", instance: str = "one", template: str = "a") -> Driver:
        """Opens the driver as a daemon would. Calls with equal arguments are daemons that follow each other."""

    @abstractmethod
    async def clean_up(self) -> None:
        """Closes the drivers, and removes what they started."""


class Owning(Subject):
    """A driver that starts and stops workers. All of them are `stub_worker.py`, given `WORKER_URI`."""

    owns_workers = True

    @abstractmethod
    async def environments(self, key: str, *, pool: str = "echo", instance: str = "one") -> list[dict[str, str]]:
        """Returns the environment of each worker that the engine runs for a key."""

    @abstractmethod
    async def kill(self, key: str) -> None:
        """Kills a key's worker behind the driver's back."""

    @abstractmethod
    async def output(self, key: str) -> str:
        """Returns what a key's workers have printed."""

    @abstractmethod
    async def inspectable(self) -> bytes:
        """Returns all that can be seen of the engine's objects, but for the workers' own environment."""

    async def ready(self, driver: Driver, key: str) -> None:
        """Starts a key, and returns once its worker can be asked to stop."""
        before = (await self.output(key)).count("ready")
        await driver.start(key)

        async def is_ready() -> bool:
            return (await self.output(key)).count("ready") > before

        await until_async(is_ready)


class NoopSubject(Subject):
    """There is no engine."""

    name = "noop"
    owns_workers = False

    def __init__(self, directory: Path) -> None:
        pass

    def driver(self, *, pool: str = "echo", instance: str = "one", template: str = "a") -> Driver:
        return NoopDriver()

    async def clean_up(self) -> None:
        pass


class SubprocessSubject(Owning):
    """The engine is this machine, seen through the records and /proc."""

    name = "subprocess"

    def __init__(self, directory: Path) -> None:
        self.state = directory / "state"
        self._drivers: list[Driver] = []

    def driver(self, *, pool: str = "echo", instance: str = "one", template: str = "a") -> SubprocessDriver:
        return self.driver_of(SubprocessTemplate(STUB, {"TEMPLATE": template}), pool=pool, instance=instance)

    def driver_of(
        self, template: SubprocessTemplate, *, pool: str = "echo", instance: str = "one", uri: str = WORKER_URI
    ) -> SubprocessDriver:
        driver = SubprocessDriver(PoolSettings(pool, instance), template, lambda: uri, self.state)
        self._drivers.append(driver)
        return driver

    def record(self, key: str, *, pool: str = "echo", instance: str = "one") -> Path:
        """Returns where the record of a key is, or would be."""
        home = names.engine_name(pool, instance, "")
        return self.state / home / f"{names.engine_name(pool, instance, key)}.json"

    def log(self, key: str) -> Path:
        record = self.record(key)
        return record.parent / "logs" / f"{record.stem}.log"

    def process(self, key: str, *, pool: str = "echo", instance: str = "one") -> psutil.Process:
        """Returns the process that a key's record tells of."""
        return psutil.Process(json.loads(self.record(key, pool=pool, instance=instance).read_bytes())["pid"])

    async def environments(self, key: str, *, pool: str = "echo", instance: str = "one") -> list[dict[str, str]]:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, psutil.NoSuchProcess):
            process = self.process(key, pool=pool, instance=instance)
            while process.status() != psutil.STATUS_ZOMBIE:
                # Empty for some microseconds after exec, which is when a start returns.
                if found := environment_of(process.pid):
                    return [found]
        return []

    async def kill(self, key: str) -> None:
        self.process(key).kill()

    async def output(self, key: str) -> str:
        return self.log(key).read_text() if self.log(key).exists() else ""

    async def inspectable(self) -> bytes:
        files = [path.read_bytes() for path in self.state.rglob("*") if path.is_file()]
        commands = [" ".join(process.cmdline()).encode() for process in self._processes()]
        return b"\n".join(files + commands)

    async def clean_up(self) -> None:
        for driver in self._drivers:
            await driver.close()
        left = self._processes()
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=10)

    def _processes(self) -> list[psutil.Process]:
        """Returns all that writes to a log here, so that even a worker that no record tells of is found."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{process.pid}/fd/1").readlink().is_relative_to(self.state):
                    found.append(process)
        return found


SUBJECTS: tuple[type[Subject], ...] = (NoopSubject, SubprocessSubject)
