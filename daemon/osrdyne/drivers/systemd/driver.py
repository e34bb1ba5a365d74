"""The driver for workers that are instances of a template unit, under the machine's systemd or a user's.

Writes the environment file of each group, and asks systemd to start and stop its unit. systemd restarts failed units,
as the template says; the driver reports it, and decides nothing. Its knowledge is in those files and in systemd itself,
so that the next daemon finds every group.
"""

from __future__ import annotations

import asyncio
import builtins
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from osrdyne.drivers import redaction
from osrdyne.drivers.base import Change, Group, How, WorkerEnd
from osrdyne.drivers.in_turn import TasksInTurn, Turn
from osrdyne.drivers.left_over import LeftOver
from osrdyne.drivers.systemd.environment import UnitRecord
from osrdyne.drivers.systemd.groups import Groups
from osrdyne.drivers.systemd.journald import JournaldReader
from osrdyne.drivers.systemd.manager import ListedUnit, Manager, SignalCallbacks
from osrdyne.drivers.systemd.snapshot import JOB_FAILURES, UnitEvent, group_state
from osrdyne.drivers.systemd.template import UnitPlace, template_hash
from osrdyne.drivers.systemd.unit_watch import UnitWatch
from osrdyne.drivers.unread import UnreadChanges
from osrdyne.errors import DriverError
from osrdyne_pool.settings import PoolSettings

__all__ = ["UnitPlace", "SystemdDriver"]

log = logging.getLogger(__name__)

#: The template hash of a group whose file was lost: no template has it, so that the group is restarted.
_UNKNOWN = "unknown"

#: How long a failed unit is kept for a person to see, and a file without a unit for a start that is under way in
#: another daemon.
_KEEP_SECONDS = 600.0


class SystemdDriver:
    """Workers as units. Use it from one event loop; a daemon that follows finds what this one started."""

    owns_workers = True

    def __init__(
        self,
        pool: PoolSettings,
        place: UnitPlace,
        worker_amqp_uri: Callable[[], str],
        *,
        worker_amqp_uri_file: Path | None = None,
    ) -> None:
        """Raises `DriverError` when the environment directory cannot be used or is open to others.

        `worker_amqp_uri` is called whenever a file is written; its result goes into that file only. Workers also get
        the path `worker_amqp_uri_file`, where a running one that may read it finds a changed password.
        """
        #: Known once systemd has been asked: empty before the first listing.
        self.template = ""
        self._place = place
        self._consumer_timeout = pool.consumer_timeout
        self._groups = Groups(pool, place.environment_directory, worker_amqp_uri, worker_amqp_uri_file)
        self._journal = JournaldReader(place.journalctl, place.manager)
        self._units = UnitWatch(self._on_event)
        self._unread = UnreadChanges()
        self._old_names = LeftOver(f"systemctl {'--user ' if place.manager == 'user' else ''}stop")
        self._manager = Manager(
            place,
            SignalCallbacks(
                self._on_unit, self._on_job_failed, self._units.removed, self._on_reloaded, self._unread.lose
            ),
        )
        #: Names of groups that are being started: their files are not in use yet, and stay.
        self._starting: set[str] = set()
        #: Since when the file of a start has had no group, by the loop's clock.
        self._left_over: dict[str, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._reports = TasksInTurn()

    async def start(self, key: str) -> None:
        """Start the unit of a key unless it runs. While it stops, systemd lets the next run follow."""
        name = self._groups.name(key)
        self._starting.add(name)
        try:
            await self._start(key, name)
        except DriverError as error:
            raise DriverError(f"cannot start a worker for key {key!r}: {error}") from error
        finally:
            self._starting.discard(name)

    async def stop(self, key: str) -> None:
        """Ask systemd to stop the unit, in the way and with the patience that the template says."""
        name = self._groups.name(key)
        record = self._groups.get(name)
        unit = await self._manager.unit(name)
        if not self._units.observe(name, unit.properties).gone:
            self._units.note_asked_to_stop(name)
            await self._manager.stop(name)
            log.info("worker asked to stop", extra=self._fields(key, name))
        elif record is not None:
            await self._forget(record)

    async def list(self) -> builtins.list[Group]:
        """Return the groups of our pool and instance; files of groups that have gone are cleaned up."""
        listed = await self._manager.listed()
        await self._learn_template()
        states = {name: group_state(unit.active, unit.sub, unit.job) for name, unit in listed.items()}
        records = self._groups.read_all({name for name, state in states.items() if state is not None})
        others = {name: states.get(name) for name in self._groups.other_names()}
        self._old_names.report(self._place.unit_of(name) for name, state in others.items() if state is not None)
        for name in [name for name, state in others.items() if state is None]:
            self._groups.remove_other(name)
        await self._compare(listed, records)
        present = {name: state for name in records if (state := states.get(name)) is not None}
        for name in present:
            self._groups.bring_up_to_date(records[name])
        await self._tidy([record for name, record in records.items() if name not in present])
        return [
            Group(records[name].key, *state, template=await self._template_of(records[name]))
            for name, state in present.items()
        ]

    async def changes(self) -> AsyncIterator[Change]:
        """Yield the ends and restarts of groups, with an error for unrequested ones, until the driver is closed.

        Raises `DriverError` when systemd's signals are missing, or were missing for a while.
        """
        while not self._unread.has_ended():
            try:
                await self._manager.connect()
            except DriverError:
                if self._unread.has_ended():
                    return
                raise
            async for change in self._unread.read():
                yield change

    async def close(self) -> None:
        """Stop listening. The workers run on."""
        self._unread.end()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._reports.cancel()
        await self._manager.close()

    async def _start(self, key: str, name: str) -> None:
        unit = await self._manager.unit(name)
        seen = self._units.observe(name, unit.properties)
        if unit.problem is not None:
            raise DriverError(unit.problem)
        former = self._groups.get(name)
        stopping = seen.active == "deactivating" or self._units.is_asked_to_stop(name)
        if (seen.runs or seen.waits) and not stopping:
            if former is None:
                # The template that it was started from is no longer known.
                self._groups.begin(key, _UNKNOWN)
            return
        if seen.active == "failed":
            await self._manager.reset_failed(name)
        # Not that of its own files: what is declared for one key alone is not part of the template.
        template = template_hash((await self._manager.template()).files, self._groups.consumer_timeout_ms)
        record = self._groups.begin(key, _UNKNOWN if unit.is_outdated else template)
        try:
            await self._manager.start(name)
        except DriverError:
            self._groups.remove(record)
            if former is not None and seen.runs:
                self._groups.write(former)
            raise
        log.info("worker asked to start", extra={**self._fields(key, name), "worker_id": record.worker_id})

    async def _learn_template(self) -> None:
        """Learn what a start now would be made from. A unit that cannot be loaded rolls no group."""
        unit = await self._manager.template()
        found = template_hash(unit.files, self._groups.consumer_timeout_ms)
        if unit.problem is not None or found == self.template:
            return
        self.template = found
        grace = await self._manager.stop_timeout()
        if grace < self._consumer_timeout:
            log.warning(
                "the unit's TimeoutStopSec= is shorter than the pool's consumer_timeout: a worker that is stopped may "
                "be killed over a request that it may still hold",
                extra={"unit": self._place.unit, "grace": grace, "consumer_timeout": self._consumer_timeout},
            )

    async def _template_of(self, record: UnitRecord) -> str:
        """Return the template that a group is of. A unit that was edited is another once systemd has read it."""
        if not self.template:
            return ""  # without a template there is nothing to compare with
        if record.template != self.template and (await self._manager.unit(record.name)).is_outdated:
            return self.template
        return record.template

    async def _compare(self, listed: Mapping[str, ListedUnit], records: Mapping[str, UnitRecord]) -> None:
        """Note changes without a signal: units of a former daemon, and missed signals."""
        changed = [name for name in records if name in listed and not self._units.observe_listed(name, listed[name])]
        for name in (*changed, *self._units.missing_from(listed)):
            self._units.observe(name, await self._manager.properties(name))

    async def _tidy(self, left_over: builtins.list[UnitRecord]) -> None:
        now = asyncio.get_running_loop().time()
        # By the start, not by the group: what has been started since is not left over.
        since = {record.worker_id: self._left_over.get(record.worker_id, now) for record in left_over}
        self._left_over = since
        for record in left_over:
            if now - since[record.worker_id] >= _KEEP_SECONDS:
                await self._forget(record)

    async def _forget(self, record: UnitRecord) -> None:
        """Remove what is left of a group that has gone: its failed state in systemd, and its file with a credential."""
        await self._manager.reset_failed(record.name)
        if record.name not in self._starting:
            self._groups.remove(record)

    # -- systemd's signals

    def _on_unit(self, name: str, properties: Mapping[str, Any]) -> None:
        if self._groups.get(name) is not None:
            self._units.observe_signal(name, properties)

    def _on_job_failed(self, name: str, result: str) -> None:
        self._on_event(name, UnitEvent(f"was not started: {JOB_FAILURES[result]}", how=How.NO_START))

    def _on_reloaded(self) -> None:
        self._spawn(self._look_at_template)

    def _on_event(self, name: str, event: UnitEvent) -> None:
        record = self._groups.get(name)
        if record is None:
            return
        if event.gone and not event.failed:
            self._spawn(self._forget, record)
        seconds = max(0.0, time.time() - event.began_at / 1e6) if event.began_at else None
        hint = self._journal.hint(self._place.unit_of(name))
        end = WorkerEnd(event.how, event.code, record.worker_id, seconds, log=hint)
        self._reports.begin(name, partial(self._report, record, event.error, event.began_at, end))

    async def _look_at_template(self) -> None:
        await self._learn_template()
        for record in self._groups.known():
            if record.template != self.template:
                self._unread.tell(Change(record.key))

    async def _report(self, record: UnitRecord, how: str | None, began_at: int, end: WorkerEnd, turn: Turn) -> None:
        error = None
        if how is not None:
            lines = await self._journal.last_lines(self._place.unit_of(record.name), began_at, redaction.MOST_LINES)
            end = replace(end, output=self._groups.shown(lines))
            error = f"worker {how}{end.trace}"
            log.warning("worker ended", extra={**self._fields(record.key, record.name), "error": error})
        # The journal takes its time. An end without an error must not pass the one before.
        await turn()
        self._unread.tell(Change(record.key, error, end))

    def _spawn(self, work: Callable[..., Awaitable[None]], *about: Any) -> None:
        async def guarded() -> None:
            try:
                await work(*about)
            except DriverError as error:
                log.info("left to the next listing", extra={"reason": str(error)})

        task = asyncio.create_task(guarded(), name="driver-systemd")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _fields(self, key: str, name: str) -> dict[str, object]:
        return {"key": key, "unit": self._place.unit_of(name)}
