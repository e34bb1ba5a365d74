"""Stops that are under way: each container gets one stop request, however often daemons change.

A second stop signal could end the work in hand of a worker that is stopping gracefully. Where this daemon does not know
whether a stop was requested, it reads the engine's past events. No signal is sent before the worker process runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any, Protocol

from osrdyne.drivers.docker import facts
from osrdyne.drivers.docker.engine import EngineRefused
from osrdyne.drivers.docker.facts import Container
from osrdyne.drivers.docker.following import Event

#: How much longer than a container's grace the engine may take to end it.
_MARGIN_SECONDS = 60.0
#: How long a container's init may take to start the worker, in seconds. The kernel drops a signal that comes earlier,
#: and the engine sends no second one. The wait is limited, because only a stop kills a worker that hangs in its start.
INIT_PATIENCE_SECONDS = 15.0
#: Time between two checks whether the worker has started.
_PAUSE_SECONDS = 0.1


class StoppingEngine(Protocol):
    """What a stop asks of the engine; `engine.Engine` has it."""

    async def stop(self, container_id: str) -> None: ...
    async def past_events(self, container_id: str) -> list[Event]: ...
    async def inspect(self, container_id: str) -> dict[str, Any] | None: ...
    async def processes(self, container_id: str) -> int: ...


class Stops:
    """What this daemon knows of containers that are named as stopping."""

    def __init__(self, engine: StoppingEngine) -> None:
        self._engine = engine
        #: Until when the engine may wait for a container, in monotonic seconds; by id.
        self._until: dict[str, float] = {}
        #: Containers that the engine sent SIGKILL.
        self._killed: set[str] = set()

    def is_under_way(self, container: Container) -> bool:
        """Return whether the engine is known to wait for a container, which it kills when the grace is over."""
        return time.monotonic() < self._until.get(container.id, 0.0)

    async def ask(self, container: Container) -> None:
        """Ask the engine to stop a container, once its init has started the worker. Raises `DriverError`."""
        await self._until_started(container)
        await self._engine.stop(container.id)
        await self._wait_for(container)

    async def see_to(self, container: Container) -> None:
        """Request a stop only where none was: a daemon may have ended between renaming a container and the request."""
        if self.is_under_way(container):
            return
        overdue = container.id in self._until
        if overdue or facts.was_asked_to_stop(await self._engine.past_events(container.id)) is False:
            await self.ask(container)
        else:
            await self._wait_for(container)

    def note_kill(self, container_id: str) -> None:
        """Remember that the engine killed a container."""
        self._killed.add(container_id)

    def was_killed(self, container_id: str) -> bool:
        return container_id in self._killed

    def forget(self, container_id: str) -> None:
        """Drop what is known of a container that has gone."""
        self._until.pop(container_id, None)
        self._killed.discard(container_id)

    def forget_all(self) -> None:
        """Drop everything: a restarted engine does not know earlier stop requests."""
        self._until.clear()

    async def _until_started(self, container: Container) -> None:
        """Wait for an init that is alone in its container: it takes no signal yet. The engine calls that running."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + INIT_PATIENCE_SECONDS
        with contextlib.suppress(EngineRefused):  # it does not run, or its processes cannot be listed
            if not facts.has_init(await self._engine.inspect(container.id)):
                return
            while await self._engine.processes(container.id) < 2 and loop.time() < deadline:  # noqa: ASYNC110
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _wait_for(self, container: Container) -> None:
        """Leave a container to the engine for as long as its own grace, whatever the template now says."""
        self._until[container.id] = (
            time.monotonic() + facts.grace(await self._engine.inspect(container.id)) + _MARGIN_SECONDS
        )
