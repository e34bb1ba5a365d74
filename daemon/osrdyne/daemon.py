"""The daemon: waits for the broker, waits for the lock, acts, and begins again when the connection ends.

Nothing that happens to the broker ends the process, restarts a worker or forgets a key: target and driver
outlive every session. Only a person (SIGTERM, SIGINT) or a setting that cannot be right ends it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import signal
import socket
from dataclasses import dataclass
from typing import Any

from osrdyne import leader, status_server, status_view
from osrdyne.back_off import back_off
from osrdyne.driver_choice import open_driver
from osrdyne.drivers import Driver
from osrdyne.errors import DaemonError
from osrdyne.management_api import ManagementApi
from osrdyne.metrics import Metrics
from osrdyne.pool_state import PoolState
from osrdyne.session import Session
from osrdyne.settings import DaemonSettings, address
from osrdyne_client.address import present, virtual_host
from osrdyne_client.amqp import Connection
from osrdyne_client.errors import OsrdyneError
from osrdyne_protocol.names import PoolNames

log = logging.getLogger(__name__)

#: A session that lasted this long, in seconds, makes up for failures before it.
_GOOD_SESSION = 30.0

#: Longest pause between two tries, in seconds: a broker that is back is seen soon, and a refused connection costs it
#: nothing.
_LONGEST_PAUSE = 2.0


@dataclass(slots=True)
class Condition:
    """What the daemon is doing, for status and readiness."""

    phase: str = "connecting"
    detail: str | None = None

    def not_ready(self) -> str | None:
        """Say why the daemon cannot work; None when it leads or stands by."""
        if self.phase in ("leading", "standby"):
            return None
        return f"{self.phase}: {self.detail}" if self.detail else self.phase


class Daemon:
    """One daemon of one pool. `run` returns after SIGTERM or SIGINT; workers go on."""

    def __init__(self, settings: DaemonSettings) -> None:
        """Raises `SettingsError`, `ManagementError` and InvalidUri for settings that cannot be right."""
        broker = settings.broker
        self._settings = settings
        self._names = PoolNames(settings.pool.name)
        self._uri = address(broker.amqp_uri, broker.amqp_uri_file, "broker.amqp_uri")
        management = address(broker.management_uri, broker.management_uri_file, "broker.management_uri")
        vhost = virtual_host(self._uri())
        self._management = ManagementApi(management, vhost, timeout=broker.timeout)
        self._metrics = Metrics()
        self._condition = Condition()
        self._id = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"

    async def run(self, started: asyncio.Future[int] | None = None) -> None:
        """Run until a signal. `started` gets the port of the status endpoints."""
        loop = asyncio.get_running_loop()
        state = PoolState.of(self._settings.pool, loop.time)
        driver = open_driver(self._settings)
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        try:
            async with status_server.serve(
                self._settings.status,
                self._metrics,
                document=lambda: self._document(state, driver),
                not_ready=self._condition.not_ready,
            ) as port:
                if started is not None:
                    started.set_result(port)
                acting = asyncio.ensure_future(self._act_for_ever(state, driver))
                stopping = asyncio.ensure_future(stop.wait())
                await asyncio.wait((acting, stopping), return_when=asyncio.FIRST_COMPLETED)
                stopping.cancel()
                if not acting.done():
                    log.info("stopping; workers go on")
                    acting.cancel()
                    await asyncio.wait((acting,))
                if not acting.cancelled():
                    acting.result()
        finally:
            await driver.close()

    async def _act_for_ever(self, state: PoolState, driver: Driver) -> None:
        failures = 0
        while True:
            began = state.clock()
            try:
                await self._act(state, driver)
            except Exception as error:  # noqa: BLE001 - whatever it is, the daemon begins again and says so
                failures = 1 if state.clock() - began >= _GOOD_SESSION else failures + 1
                self._ended(error)
            await asyncio.sleep(back_off(failures, limit=_LONGEST_PAUSE) * random.uniform(0.5, 1.0))

    async def _act(self, state: PoolState, driver: Driver) -> None:
        self._condition.phase = "connecting"
        connection = await self._connect()
        try:
            self._become("standby", None)
            lock_lost = await leader.acquire(connection, self._names)
            session = Session(self._settings, self._names, state, driver, self._metrics, self._management, self._id)
            self._become("preparing", None)
            await session.run(connection, lock_lost, lambda: self._acting(state))
        finally:
            self._metrics.leader.set(0)
            await connection.close()

    async def _connect(self) -> Connection:
        broker = self._settings.broker
        return await Connection.open(
            present(self._uri),
            name=f"osrdyne {self._settings.pool.name} {self._id}",
            # A broker gives a silent peer up after two to three heartbeats (rabbit_heartbeat.erl), and with it the
            # lock: these are so short that this, too, is within twice the setting.
            heartbeat=max(1.0, 2 * broker.heartbeat // 3),
            timeout=broker.timeout,
        )

    def _acting(self, state: PoolState) -> None:
        self._metrics.leader.set(1)
        self._become("leading", None)
        log.info("acting", extra={"pool": self._names.pool, "keys": len(state.tracker.wanted)})

    def _ended(self, error: BaseException) -> None:
        reasons = _leaves(error)
        text = "; ".join(dict.fromkeys(str(one) or type(one).__name__ for one in reasons))
        unexpected = [one for one in reasons if not isinstance(one, OsrdyneError | DaemonError | TimeoutError)]
        self._metrics.sessions_ended.inc()
        self._become("waiting", text)
        for one in unexpected:
            log.error("a task failed unexpectedly; beginning again", exc_info=one)
        log.warning("not acting; trying again", extra={"reason": text})

    def _become(self, phase: str, detail: str | None) -> None:
        self._condition.phase = phase
        self._condition.detail = detail

    def _document(self, state: PoolState, driver: Driver) -> dict[str, Any]:
        return status_view.document(
            state,
            pool=self._names.pool,
            instance=self._settings.pool.instance,
            phase=self._condition.phase,
            detail=self._condition.detail,
            driver=self._settings.driver.kind,
            daemon_id=self._id,
            owns_workers=driver.owns_workers,
        )


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for one in error.exceptions for leaf in _leaves(one)]
    return [error]
