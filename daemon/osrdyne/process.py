"""The daemon as a process: serves the status, ends at a signal, and switches to changed settings.

Changed settings make a new daemon while the old one still acts. Then the old one ends in good order, as at a signal,
and the new one begins like any daemon, which restarts no worker and forgets no key.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any

from osrdyne.daemon import Daemon
from osrdyne.metrics import Metrics
from osrdyne.settings.daemon import DaemonSettings
from osrdyne.settings.file import SettingsFile, changes
from osrdyne_runtime import program
from osrdyne_runtime.console.imports import NotInstalled, extra

log = logging.getLogger(__name__)

#: Seconds after which a task that has not ended is cancelled again. Closing its connections takes up to 3 s.
_CANCEL_AGAIN_SECONDS = 5.0


class Process:
    """One process of one pool's daemon."""

    def __init__(self, file: SettingsFile) -> None:
        """Raises `SettingsError`, `ManagementError` and InvalidUri for invalid settings.

        NotInstalled: the settings say where the status is served, and what serves it is an extra.
        """
        self._file = file
        self._metrics = Metrics()
        self._daemon = Daemon(file.settings, self._metrics)
        try:
            with extra("osrdyne[status]"):
                from osrdyne.status import server
        except NotInstalled as error:
            if "status" in file.settings.model_fields_set:
                raise
            self._serve, self._why = None, str(error)
        else:
            self._serve, self._why = server.serve, ""

    async def run(self, *, at_terminal: bool = False) -> None:
        """Run until SIGTERM or SIGINT; workers keep running. Raises the driver's errors for a wrong template.

        With `at_terminal`, SIGHUP stops it, too, and a second signal ends the process.
        """
        stop = asyncio.Event()
        program.on_stop_signal(stop.set, once=at_terminal, hangup=at_terminal)
        self._daemon.open()
        try:
            async with (
                self._served(),
                _task(stop.wait(), "signal") as stopping,
            ):
                while not stopping.done():
                    await self._act(stopping)
                log.info("stopping; workers go on")
        finally:
            await self._daemon.close()

    def _served(self) -> AbstractAsyncContextManager[object]:
        if self._serve is None:
            log.warning("the status is not served", extra={"reason": self._why})
            return nullcontext()
        status = self._daemon.settings.status
        return self._serve(status, self._metrics, document=self._document, not_ready=self._not_ready)

    async def _act(self, stopping: asyncio.Task[Any]) -> None:
        """Act until a signal, or until the next daemon has replaced this one."""
        now = self._daemon
        async with _task(now.act(), "acting") as acting, _task(self._file.changed(self._make), "settings") as changing:
            await asyncio.wait((acting, changing, stopping), return_when=asyncio.FIRST_COMPLETED)
            if acting.done():
                acting.result()
            if not changing.done():
                return
            self._daemon = changing.result()
            log.info(
                "settings changed; beginning again with them; workers go on",
                extra={"changed": changes(now.settings, self._daemon.settings) or ["template"]},
            )
            if self._daemon.settings.status != now.settings.status:
                log.warning("a changed status address takes effect when the process restarts")
        await now.close()

    def _make(self, settings: DaemonSettings) -> Daemon:
        daemon = Daemon(settings, self._metrics)
        daemon.open()
        return daemon

    def _not_ready(self) -> str | None:
        return self._daemon.not_ready()

    def _document(self) -> dict[str, Any]:
        self._metrics.settings_rejected.set(self._file.error is not None)
        return {**self._daemon.document(), "settings_error": self._file.error}


@asynccontextmanager
async def _task(action: Any, name: str) -> AsyncIterator[asyncio.Task[Any]]:
    """Run a task alongside the body, and end it with the body."""
    task = asyncio.create_task(action, name=name)
    try:
        yield task
    finally:
        # Again until it ends: before Python 3.13, a task group that fails while it is cancelled forgets that it was.
        while not task.done():
            task.cancel()
            await asyncio.wait((task,), timeout=_CANCEL_AGAIN_SECONDS)
