"""The driver for workers that are containers: one a group, on one Docker engine, which restarts them by itself.

Reads the template, the engine's listings and its events; creates, starts, renames, stops and removes containers with
our labels. All that the next daemon must know is in the engine: labels say to which group a container belongs, its name
says whether it is to stop. Never kills a worker: the engine does, when a container's grace is over.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import logging
import secrets
import weakref
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from osrdyne.drivers import redaction
from osrdyne.drivers.base import Change, Group, How
from osrdyne.drivers.docker import credential, endings, facts
from osrdyne.drivers.docker.engine import Conflict, Engine, EngineRefused, NoSuchContainer
from osrdyne.drivers.docker.facts import Container
from osrdyne.drivers.docker.following import Event, EventFollower
from osrdyne.drivers.docker.stopping import Stops
from osrdyne.drivers.docker.template import KEY, ContainerTemplate, load
from osrdyne.drivers.left_over import LeftOver
from osrdyne.drivers.unread import UnreadChanges
from osrdyne.errors import DriverError
from osrdyne_pool.settings import PoolSettings
from osrdyne_protocol import names

__all__ = ["DockerDriver"]

log = logging.getLogger(__name__)

#: `die` ends a run of a container, `kill` is any signal that the engine sent, and only `stop` reports a container
#: that was stopped while it waited for its restart.
_ACTIONS = ["die", "kill", "stop"]
#: How often a start or a stop tries again when another program, or the engine, changes the same container, and the
#: pause between tries: a name is taken before the container that is being created under it is listed.
_TRIES, _PAUSE_SECONDS = 5, 0.2


class DockerDriver:
    """Workers as containers. Use it from one event loop; two daemons on one engine do no harm."""

    owns_workers = True

    def __init__(
        self, pool: PoolSettings, template_file: Path, worker_amqp_uri_file: Path, *, host: str | None = None
    ) -> None:
        """Raises `SettingsError` for an invalid template or credential. The engine may be away.

        Workers read `worker_amqp_uri_file` themselves, whose directory is mounted into their containers.
        """
        file = credential.check(worker_amqp_uri_file)
        self._template = ContainerTemplate(pool, load(template_file), file)
        self.template = self._template.hash
        self._template_file = template_file
        self._pool = pool
        self._engine = Engine(host)
        self._stops = Stops(self._engine)
        self._following: EventFollower | None = None
        self._opening = asyncio.Lock()
        #: One action at a time for each group, by name.
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        #: Groups whose start was requested while their container was stopping: the next container follows it.
        self._start_again: set[str] = set()
        #: Ids of containers whose end was reported lately: an event that comes after the listing is not a second end.
        self._reported: deque[str] = deque(maxlen=1000)
        self._tasks: set[asyncio.Task[None]] = set()
        #: Whether the engine has given a container a log without a limit: so it does until it is started again.
        self._limit_logs = False
        self._left_over = LeftOver("docker stop")
        self._unread = UnreadChanges()

    async def start(self, key: str) -> None:
        """Start a container unless one runs. While the old one is stopping, the next starts when it is gone."""
        name = self._name(key)
        async with self._locked(name):
            await self._follow()
            await self._start(key, name)

    async def stop(self, key: str) -> None:
        """Have the engine stop the container; it kills what still runs when the container's grace is over."""
        name = self._name(key)
        async with self._locked(name):
            self._start_again.discard(name)
            await self._follow()
            for container in await self._containers({KEY: key}):
                if container.is_over:
                    await self._engine.remove(container.id)
                elif container.stopping:
                    await self._stops.see_to(container)
                else:
                    with contextlib.suppress(NoSuchContainer):
                        await self._mark(container, facts.stopping_name(name, container.id))
                        await self._stops.ask(container)
                        log.info("worker asked to stop", extra=_fields(key, container.id))

    async def list(self) -> builtins.list[Group]:
        """Return the groups of our pool and instance; also clean up ended containers and resume unfinished stops."""
        await self._follow()
        listed = await self._engine.list(self._template.labels())
        containers = self._ours(listed)
        self._left_over.report(facts.other_names(listed, self._pool.name, self._pool.instance))
        for container in containers:
            busy = self._locked(self._name(container.key)).locked()
            if not busy and (container.is_over or (container.stopping and not self._stops.is_under_way(container))):
                self._later(self._tidy, container)
        return facts.groups(containers)

    async def changes(self) -> AsyncIterator[Change]:
        """Yield the ends of workers, with an error for an unrequested end. Returns when the driver is closed.

        Raises `DriverError` when the engine's events end; the next call follows them again.
        """
        while not self._unread.has_ended():
            await self._follow()
            async for change in self._unread.read():
                yield change

    async def close(self) -> None:
        """Stop following the engine. The containers run on."""
        self._unread.end()
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        async with self._opening:
            if self._following is not None:
                await self._following.close()
        await self._engine.close()

    # -- starting and stopping: under the group's lock

    async def _start(self, key: str, name: str) -> None:
        for _ in range(_TRIES):
            containers = await self._containers({KEY: key})
            if any(not container.is_over and not container.stopping for container in containers):
                return
            if any(not container.is_over for container in containers):
                self._start_again.add(name)
                return
            try:
                with contextlib.suppress(Conflict, NoSuchContainer):
                    await self._run(key, name, containers)
                    return
            except DriverError as error:
                raise DriverError(f"cannot start a worker for key {key!r}: {error}{self._remedy(error)}") from error
            await asyncio.sleep(_PAUSE_SECONDS)
        raise DriverError(
            f"cannot start a worker for key {key!r}: another container has the name {name}; remove or rename it"
        )

    async def _run(self, key: str, name: str, remains: builtins.list[Container]) -> None:
        """Start a group's container. It has only these `remains`, one of which may be created but not started."""
        container_id = None
        for leftover in remains:
            if leftover.state == "created" and not leftover.stopping and leftover.template == self.template:
                container_id = leftover.id
            else:
                await self._engine.remove(leftover.id)
        if container_id is None:
            container_id = await self._create(key, name)
        # The engine fills in the log driver and options that it was started with, and shows them nowhere else. A former
        # daemon may have created this container, and ended before it looked.
        if not self._template.names_log and facts.has_endless_log(await self._engine.inspect(container_id)):
            self._limit_logs = True
            await self._engine.remove(container_id)
            container_id = await self._create(key, name)
        try:
            await self._engine.start(container_id)
        except DriverError:
            with contextlib.suppress(DriverError):
                await self._engine.remove(container_id)
            raise
        log.info("worker started", extra=_fields(key, container_id))

    async def _create(self, key: str, name: str) -> str:
        worker_id = f"{name}-{secrets.token_hex(8)}"
        return await self._engine.create(name, self._template.body(key, worker_id, limit_log=self._limit_logs))

    async def _mark(self, container: Container, stopping_name: str) -> None:
        stopped = False
        for left in reversed(range(_TRIES)):
            try:
                await self._engine.rename(container.id, stopping_name)
            except NoSuchContainer:
                raise
            except EngineRefused:
                if not left:
                    raise
            else:
                return
            # One that waits for its restart has no network in which it could be renamed, and no work in hand. One that
            # has just ended, or is just restarted, is in neither state yet: try again.
            found = await self._engine.inspect(container.id)
            if found is not None and found["State"]["Restarting"] and not stopped:
                await self._engine.stop(container.id)
                stopped = True
            else:
                await asyncio.sleep(_PAUSE_SECONDS)

    # -- ends

    def _on_event(self, event: Event) -> None:
        container_id, attributes = event["Actor"]["ID"], event["Actor"]["Attributes"]
        key, name = attributes.get(KEY), attributes.get("name", "")
        if key is None or name.partition(".")[0] != self._name(key):
            return
        if event["Action"] == "kill":
            if attributes.get("signal") == "9":
                self._stops.note_kill(container_id)
        elif container_id not in self._reported:
            code = int(attributes["exitCode"]) if event["Action"] == "die" else None
            self._later(self._ended, container_id, key, name, code)

    async def _tidy(self, container: Container) -> None:
        if not container.is_over:
            async with self._locked(self._name(container.key)):
                await self._stops.see_to(container)
        elif container.state == "created":
            # The daemon that wanted to start it has gone, or starts another.
            async with self._locked(self._name(container.key)):
                await self._engine.remove(container.id)
        else:
            await self._ended(container.id, container.key, "", None)

    async def _ended(self, container_id: str, key: str, its_name: str, exit_code: int | None) -> None:
        """Handle a container that has ended, with the name `its_name`. Without `exit_code`, no event reported it."""
        name = self._name(key)
        async with self._locked(name):
            found = await self._engine.inspect(container_id)
            state = found["State"] if found else {}
            runs = bool(state.get("Running"))  # the engine has started it again, or will
            if container_id in self._reported or (exit_code is None and (runs or not found)):
                return
            exit_code = state.get("ExitCode", 0) if exit_code is None else exit_code
            called = found["Name"].lstrip("/") if found else its_name
            end = replace(
                endings.end(state, exit_code),
                worker_id=facts.worker_id(found),
                log=f"docker logs {called}" if runs else "",
            )
            lines = await self._engine.last_lines(container_id, redaction.MOST_LINES)
            end = replace(end, output=credential.shown(lines, self._template.worker_amqp_uri_file))
            said = f": {end.output[-1]}" if end.output else ""
            if facts.is_stopping(called):
                end = replace(end, how=How.STOPPED, code=None)
                error = self._outlasted(container_id, facts.grace(found))
                error = None if error is None else f"{error}{said}"
            else:
                error = f"worker {endings.how(state, exit_code)}{said}"
            refused = None
            if not runs:
                if await self._engine.remove(container_id):
                    self._reported.append(container_id)
                    self._stops.forget(container_id)
                if name in self._start_again:
                    self._start_again.discard(name)
                    try:
                        await self._start(key, name)
                    except DriverError as refusal:
                        refused = refusal
        log.log(
            logging.INFO if error is None else logging.WARNING,
            "worker ended",
            extra={**_fields(key, container_id), "error": error},
        )
        self._unread.tell(Change(key, error, end))
        if refused is not None:
            self._unread.refused(key, refused)

    def _outlasted(self, container_id: str, grace: int) -> str | None:
        """Return what a person should know of a requested end, None where all went well."""
        if not self._stops.was_killed(container_id):
            return None
        return (
            f"worker did not end within {grace} s of being asked to and was killed; what it held goes back to its queue"
        )

    # -- the engine

    async def _follow(self) -> None:
        """Follow the engine's events, before any action that they may report."""
        async with self._opening:
            if self._unread.has_ended() or (self._following is not None and self._following.is_open):
                return
            stream = await self._engine.events(self._template.labels(), _ACTIONS)
            self._stops.forget_all()
            self._following = EventFollower(stream, self._on_event, self._on_end)

    def _on_end(self) -> None:
        self._engine.disconnect()
        self._limit_logs = False
        self._unread.lose("the Docker engine's events have ended: it was stopped, or the connection to it was lost")

    async def _containers(self, labels: dict[str, str]) -> builtins.list[Container]:
        return self._ours(await self._engine.list({**self._template.labels(), **labels}))

    def _ours(self, listed: builtins.list[dict[str, Any]]) -> builtins.list[Container]:
        found = (facts.container(container, self._pool.name, self._pool.instance) for container in listed)
        return [container for container in found if container is not None]

    def _remedy(self, error: DriverError) -> str:
        if not isinstance(error, EngineRefused):
            return ""
        if "no such image" in str(error).lower():
            return f"; have the engine pull {self._template.image}, or correct Image in {self._template_file}"
        return f"; is {self._template_file} right, and is {self._template.worker_amqp_uri_file.parent} there for it?"

    def _name(self, key: str) -> str:
        return names.engine_name(self._pool.name, self._pool.instance, key)

    def _locked(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())

    def _later(self, work: Callable[..., Awaitable[None]], *about: Any) -> None:
        """Run work in the background. The next listing finds failed work again."""
        if self._unread.has_ended():
            return

        async def guarded() -> None:
            try:
                await work(*about)
            except DriverError as error:
                log.warning("container not cleaned up; trying again later", extra={"reason": str(error)})

        task = asyncio.create_task(guarded(), name="docker-driver")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _fields(key: str, container_id: str) -> dict[str, object]:
    return {"key": key, "container": container_id[:12]}
