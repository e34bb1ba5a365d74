"""The daemon: waits for the broker, waits for the lock, acts, and begins again when the connection ends.

No broker failure ends it, restarts a worker or forgets a key: target and driver outlive every session.
It runs with one set of settings; `process` ends it, and starts the next one with changed settings.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from functools import partial
from typing import Any

from osrdyne import leader
from osrdyne.base.credentials import address
from osrdyne.broker.lifecycle_events import LifecycleEvents
from osrdyne.broker.management_api import ManagementApi
from osrdyne.drivers.base import Driver
from osrdyne.errors import ManagementError, SessionEnded
from osrdyne.metrics import Metrics
from osrdyne.session import DaemonSession
from osrdyne.settings.daemon import DaemonSettings
from osrdyne.state.pool import PoolState
from osrdyne.status import view as status_view
from osrdyne_amqp import Connection
from osrdyne_amqp.address import present, virtual_host
from osrdyne_amqp.errors import BrokerError
from osrdyne_amqp.event_line import EventLine
from osrdyne_protocol.errors import OsrdyneError
from osrdyne_runtime.outages import OutageLog
from osrdyne_runtime.retry import Retry

log = logging.getLogger(__name__)

#: A session that lasted this long resets the count of failures.
_STABLE_SESSION_SECONDS = 30.0

#: Longest pause between two tries. It is short, because a refused connection costs the broker nothing.
_LONGEST_PAUSE_SECONDS = 2.0
#: What ends a session because of the broker.
_OF_THE_BROKER = (BrokerError, ManagementError, SessionEnded, TimeoutError)


class Daemon:
    """One daemon of one pool, by one set of settings. `open` it, let it `act` until cancelled, `close` it."""

    def __init__(self, settings: DaemonSettings, metrics: Metrics) -> None:
        """Raises `SettingsError`, `ManagementError` and InvalidUri for invalid settings."""
        broker = settings.broker
        self.settings = settings
        self._uri = address(broker.amqp_uri, broker.amqp_uri_file, "broker.amqp_uri")
        management = address(broker.management_uri, broker.management_uri_file, "broker.management_uri")
        vhost = virtual_host(self._uri())
        self._management = ManagementApi(management, vhost, timeout=broker.timeout)
        self._metrics = metrics
        #: For status and readiness.
        self._phase = "connecting"
        self._detail: str | None = None
        self._outage = OutageLog(log, "the broker")
        #: What ends sessions, and is not the broker: a driver, or a mistake of ours.
        self._interrupted = OutageLog(log, "the session", meanwhile="beginning again")
        self._id = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._state: PoolState
        self._driver: Driver

    def open(self) -> None:
        """Create the driver. Raises `DriverError` or `SettingsError` for an invalid template or place."""
        self._driver = self.settings.driver.open(self.settings.pool)
        self._state = PoolState.of(self.settings.pool, asyncio.get_running_loop().time)

    async def act(self) -> None:
        """Act until cancelled; broker failures do not end it."""
        retry = Retry(limit=_LONGEST_PAUSE_SECONDS, stable_after=_STABLE_SESSION_SECONDS)
        events = EventLine(self._state.names.activity_exchange, partial(self._connect, "events"), sender=self._id)
        try:
            while True:
                began = self._state.clock()
                try:
                    await self._act(LifecycleEvents(events, self._id))
                except Exception as error:  # noqa: BLE001 - after any error, the daemon logs it and begins again
                    self._ended(error)
                await asyncio.sleep(retry.failed(self._state.clock() - began))
        finally:
            await events.close()

    async def close(self) -> None:
        """Close the driver; workers keep running."""
        await self._driver.close()

    def not_ready(self) -> str | None:
        """Say why the daemon cannot work; None when it can, or stands by."""
        return status_view.not_ready(self._state, self._phase, self._detail)

    async def _act(self, lifecycle: LifecycleEvents) -> None:
        self._phase = "connecting"
        connection = await self._connect()
        try:
            self._become("standby", None)
            # A standby may stand by for days.
            stands = asyncio.get_running_loop().call_later(_STABLE_SESSION_SECONDS, self._works, self._state.clock())
            try:
                lock_lost = await leader.acquire(connection, self._state.names)
            finally:
                stands.cancel()
            session = DaemonSession(
                self.settings,
                self._state,
                self._driver,
                self._metrics,
                self._management,
                lifecycle,
                self._connect,
            )
            self._become("preparing", None)
            await session.run(connection, lock_lost, self._acting)
        finally:
            self._metrics.leader.set(0)
            await connection.close()

    async def _connect(self, what: str = "") -> Connection:
        broker, name = self.settings.broker, f"osrdyne {self.settings.pool.name} {self._id}"
        return await Connection.open(
            present(self._uri),
            name=f"{name}, {what}" if what else name,
            # A broker closes a silent connection after two to three heartbeats (rabbit_heartbeat.erl), and frees the
            # lock. With this heartbeat, three of them take at most twice the setting.
            heartbeat=max(1.0, 2 * broker.heartbeat // 3),
            timeout=broker.timeout,
        )

    def _works(self, since: float) -> None:
        """Note that the session works, and since when."""
        self._outage.over(since)
        self._interrupted.over(since)

    def _acting(self) -> None:
        self._works(self._state.clock())
        self._metrics.leader.set(1)
        self._become("leading", None)
        log.info("acting", extra={"pool": self._state.names.pool, "keys": len(self._state.tracker.wanted)})

    def _ended(self, error: BaseException) -> None:
        reasons = _leaves(error)
        text = "; ".join(dict.fromkeys(str(reason) or type(reason).__name__ for reason in reasons))
        unexpected = [reason for reason in reasons if not isinstance(reason, OsrdyneError | TimeoutError)]
        self._metrics.sessions_ended.inc()
        self._become("waiting", text)
        for failure in unexpected:
            log.error("a task failed unexpectedly; beginning again", exc_info=failure)
        outage = self._outage if all(isinstance(reason, _OF_THE_BROKER) for reason in reasons) else self._interrupted
        outage.failed(text, self._state.clock())

    def _become(self, phase: str, detail: str | None) -> None:
        self._phase = phase
        self._detail = detail

    def document(self) -> dict[str, Any]:
        """Return the status as JSON-ready values; see `status_view.document`."""
        return status_view.document(
            self._state,
            instance=self.settings.pool.instance,
            phase=self._phase,
            detail=self._detail,
            late=self.settings.broker.statistics_interval,
            driver=self.settings.driver.kind,
            daemon_id=self._id,
            owns_workers=self._driver.owns_workers,
        )


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for exception in error.exceptions for leaf in _leaves(exception)]
    return [error]
