"""A daemon of the simulation: the real one, on the model's connection, that can be killed and started again."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from osrdyne.daemon import Daemon
from osrdyne.metrics import Metrics
from osrdyne.state.pool import PoolState
from osrdyne_amqp import Connection
from osrdyne_protocol.errors import OsrdyneError
from simulation.engine import ModelDriver
from simulation.virtual_time import Clock, VirtualLoop, context_of

if TYPE_CHECKING:
    from simulation.world import World


class OnModel(Daemon):
    """The daemon with the model's broker and management API behind it."""

    def __init__(self, world: World, name: str, state: PoolState, driver: ModelDriver) -> None:
        super().__init__(world.daemon_settings, Metrics())
        self._state, self._driver = state, driver
        self._world = world
        self._id = self.name = name
        self._management = world.management()
        self.sessions = 0

    async def _connect(self, what: str = "") -> Connection:
        broker = self.settings.broker
        if what:
            return await self._world.broker.open(
                self._world.uris["daemon"], name=f"{self.name}.{self.sessions}.{what}", timeout=broker.timeout
            )
        self.sessions += 1
        return await self._world.broker.open(
            self._world.uris["daemon"],
            name=f"{self.name}.{self.sessions}",
            heartbeat=broker.heartbeat,
            timeout=broker.timeout,
        )

    def _acting(self) -> None:
        super()._acting()
        self._world.note("acting", self.name)

    def _ended(self, error: BaseException) -> None:
        self._world.note("session ended", self.name, "", _reasons(error))
        super()._ended(error)


def _reasons(error: BaseException) -> tuple[bool, list[str]]:
    """Say whether an end is one that the daemon expects, and why it ended."""
    if isinstance(error, BaseExceptionGroup):
        parts = [_reasons(exception) for exception in error.exceptions]
        return all(part[0] for part in parts), [text for part in parts for text in part[1]]
    expected = isinstance(error, OsrdyneError | TimeoutError)
    return expected, [f"{type(error).__name__}: {error}"]


class DaemonProcess:
    """A machine's daemon: `start`, `kill`, and `start` again with nothing of the former but its workers."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name
        self._starts = 0
        assert isinstance(world.loop, VirtualLoop)
        self._loop = world.loop
        self.clock = Clock()
        self.daemon: OnModel | None = None
        self.state: PoolState | None = None
        self.task: asyncio.Task[None] | None = None
        self._driver: ModelDriver | None = None
        #: Operations left until `_when_due` runs.
        self._countdown: int | None = None
        self._how = ""

    @property
    def connection(self) -> str | None:
        """Name of the first connection of its last session."""
        return f"{self.daemon.name}.{self.daemon.sessions}" if self.daemon is not None else None

    def owns(self, connection: str) -> bool:
        """Whether this is a connection of its last session."""
        return connection == self.connection or connection.startswith(f"{self.connection}.")

    def start(self) -> None:
        if self.task is not None:
            return
        self._starts += 1
        loop = asyncio.get_running_loop()
        self.state = PoolState.of(self._world.scenario.pool, loop.time)
        self._driver = self._world.engine.driver()
        self.daemon = OnModel(self._world, f"daemon {self._name}{self._starts}", self.state, self._driver)
        self._world.note("daemon started", self.daemon.name)
        self.task = loop.create_task(self.daemon.act(), name=self.daemon.name, context=context_of(self.clock))

    def kill(self) -> None:
        """End it between two operations, as SIGKILL does."""
        if self.task is None or self.daemon is None or self._driver is None:
            return
        self.go_on()
        self._world.note("daemon killed", self.daemon.name)
        for name in filter(self.owns, self._world.broker.connection_names()):
            self._world.broker.kill(name)
        self.task.cancel()
        self._world.engine.forget(self._driver)
        self.task = self.daemon = self.state = self._driver = None

    def stand_still(self) -> None:
        """Let its process do nothing until `go_on`."""
        self._loop.stand_still(self.clock)

    def go_on(self) -> None:
        self._loop.go_on(self.clock)

    @property
    def stands_still(self) -> bool:
        return self.clock.kept is not None

    def after(self, operations: int, how: str) -> None:
        """Let it be killed, or its connection cut, right before one of its next broker operations."""
        self._countdown, self._how = operations, how

    def disarm(self) -> None:
        """The faults are over: forget `after`."""
        self._countdown = None

    @property
    def armed(self) -> bool:
        """Whether `on_operation` has anything to count."""
        return self._countdown is not None

    def on_operation(self) -> None:
        if self._countdown is None:
            return
        self._countdown -= 1
        if self._countdown >= 0:
            return
        self._countdown = None
        if self._how == "kill":
            self._world.killed(self)
        elif self.connection is not None:
            self._world.note("daemon cut", self.daemon.name if self.daemon else "")
            self._world.broker.cut(self.connection)

    async def end(self) -> None:
        """End it as SIGTERM does."""
        if self.task is not None:
            self.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.task
            self.task = None
