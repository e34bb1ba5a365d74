"""What the conformance suite asks of a driver under test and of its engine."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from osrdyne.drivers.base import Change, Driver, Group, GroupState
from testbed.waiting import PATIENCE_SECONDS, until_async

#: Credential that every worker is given, and that may show up nowhere but in its environment.
PASSWORD = "pass-word-of-the-workers"
WORKER_URI = f"amqp://worker:{PASSWORD}@broker.invalid/vhost"
#: What every worker of the suite runs.
STUB_WORKER = Path(__file__).parents[1] / "stub_worker.py"


async def listed(driver: Driver) -> dict[str, Group]:
    """Returns the driver's groups by key, and makes sure that no key is listed twice."""
    groups = await driver.list()
    found = {group.key: group for group in groups}
    assert len(found) == len(groups)
    return found


async def next_change(driver: Driver, *, within: float = PATIENCE_SECONDS) -> Change:
    """Returns the next change of any key."""
    async with asyncio.timeout(within):
        return await anext(aiter(driver.changes()))


async def is_empty(driver: Driver) -> bool:
    """Says whether the driver lists no group."""
    return await driver.list() == []


class Subject(ABC):
    """A driver and an engine; nothing that a test started is left after `clean_up`."""

    name: ClassVar[str]
    owns_workers: ClassVar[bool]

    @classmethod
    def prepare(cls) -> None:
        """Builds what takes longer than a test may take. Called before the first test; does nothing the second time."""
        return  # most engines have nothing to build

    @classmethod
    @contextlib.contextmanager
    def engine(cls) -> Iterator[Any]:
        """Starts the engine that all tests of a session share; yields what `__init__` needs of it."""
        yield None

    def __init__(self, engine: Any, directory: Path) -> None:
        """Prepares for one test; `directory` is empty and the test's own."""
        #: Unique for a test where the engine is shared, so that tests do not see each other's groups.
        self.pool = "echo"

    @abstractmethod
    def driver(self, *, pool: str | None = None, instance: str = "one", template: str = "a") -> Driver:
        """Opens the driver as a daemon would; the pool is `self.pool` unless one is given.

        Calls with equal arguments are daemons that follow each other.
        """

    @abstractmethod
    async def clean_up(self) -> None:
        """Closes the drivers, and removes what they started."""


class OwningSubject(Subject):
    """A driver that starts and stops workers. All of them are `stub_worker.py`, given `WORKER_URI`."""

    owns_workers = True
    #: True where the engine itself brings a worker back that ended; else the group loop starts the group again.
    heals: ClassVar[bool]

    @abstractmethod
    async def environments(self, key: str, *, pool: str | None = None, instance: str = "one") -> list[dict[str, str]]:
        """Returns the environment of each worker process that the engine runs for a key."""

    @abstractmethod
    async def workers(self, key: str, *, pool: str | None = None, instance: str = "one") -> list[str]:
        """Returns an identity for each worker process of a key, which no other process ever had."""

    @abstractmethod
    async def kill(self, key: str) -> None:
        """Kills a key's worker behind the driver's back."""

    @abstractmethod
    async def output(self, key: str) -> str:
        """Returns what a key's workers have printed."""

    @abstractmethod
    async def inspectable(self) -> bytes:
        """Returns all that can be seen of the engine's objects, but for the workers' own environment."""

    async def until_running(self, driver: Driver, *keys: str) -> None:
        """Returns once each key's group is listed as running, with a worker process that has its environment."""

        async def running() -> bool:
            groups = await listed(driver)
            for key in keys:
                if key not in groups or groups[key].state is not GroupState.RUNNING or not groups[key].workers:
                    return False
            return True

        await until_async(running)

    async def until_gone(self, driver: Driver, *keys: str) -> None:
        """Returns once none of the keys is listed any more."""

        async def gone() -> bool:
            return not (await listed(driver)).keys() & set(keys)

        await until_async(gone)

    async def ready(self, driver: Driver, key: str) -> None:
        """Starts a key, and returns once its worker can be asked to stop."""
        before = (await self.output(key)).count("ready")
        await driver.start(key)

        async def is_ready() -> bool:
            return (await self.output(key)).count("ready") > before

        await until_async(is_ready)
        await self.until_running(driver, key)

    async def error(self, driver: Driver, key: str, says: str = "") -> str:
        """Returns the next error of a key that says this: a busy engine may report others for a moment."""
        heard: list[str] = []
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                async for change in driver.changes():
                    if change.key == key and change.error is not None:
                        heard.append(change.error)
                        if says in change.error:
                            return change.error
        except TimeoutError:
            raise AssertionError(f"no error says {says!r}: {heard}") from None
        raise AssertionError("the driver was closed")
