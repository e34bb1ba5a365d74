"""The processes of jobs. A process waits for what is away when it starts, and ends at SIGTERM or SIGINT.

Redo needs database and broker. The administration works without a broker meanwhile: `LateCaster`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Self

from sqlalchemy import Engine

from osrdyne_calls.closing import CLOSE_SECONDS
from osrdyne_client import BrokerError, Client
from osrdyne_client.errors import ClientClosed, InvalidUri
from osrdyne_jobs.database.engines import check_tables, place
from osrdyne_jobs.redo import Redo
from osrdyne_jobs.waiting import RETRY_SECONDS, reached, until_signal
from osrdyne_pool.settings import RedoSettings
from osrdyne_runtime import log_lines, program
from osrdyne_runtime.outages import OutageLog

log = log_lines.logger(__name__)


def redo(
    engine: Engine, make_client: Callable[[], Client], settings: RedoSettings, *, name: str, ready_file: Path | None
) -> None:
    """Scan until SIGTERM or SIGINT, which end a scan between two batches.

    `make_client` returns a client of the pool that is not yet open. `ready_file` is absent until the first scan, and
    its time of change is that of the last one. Raises NoSchema, InvalidUri, and ClientClosed.
    """
    if ready_file is not None:
        ready_file.unlink(missing_ok=True)  # that of an earlier process
    scanned = ready_file.touch if ready_file is not None else lambda: None
    program.run(until_signal(partial(_redo, engine, make_client, settings, name, scanned)), "osrdyne jobs redo")


def _redo(
    engine: Engine,
    make_client: Callable[[], Client],
    settings: RedoSettings,
    name: str,
    scanned: Callable[[], object],
    stop: threading.Event,
) -> None:
    away = OutageLog(log, "the database", meanwhile="waiting for it", database=place(engine))
    if reached(lambda: _with_tables(engine), away, stop) is None:
        return
    client = _client(make_client, OutageLog(log, "the broker", meanwhile="waiting for it"), stop)
    if client is None:
        return
    try:
        Redo(engine, client, settings, name=name).run(stop, scanned=scanned)
    finally:
        client.close()


class LateCaster:
    """Casts with a client that is opened as soon as the broker is there. Use it with `with`.

    Until then each cast raises ClientClosed, and redo casts the job.
    """

    def __init__(self, make_client: Callable[[], Client]) -> None:
        """`make_client` returns a client of the pool that is not yet open; it is called for each attempt."""
        self._make_client = make_client
        self._client: Client | None = None
        self._outage = OutageLog(log, "the broker", meanwhile="redo casts what is created here")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._open_later, name="osrdyne jobs: broker", daemon=True)

    def start_cast(self, key: str, body: bytes, *, timeout: float | None = None) -> Any:
        """Do what `Client.start_cast` does."""
        if self._client is None:
            raise ClientClosed("the broker was not reached yet")
        return self._client.start_cast(key, body, timeout=timeout)

    def __enter__(self) -> Self:
        """Try once, and go on in a thread where the broker is away. Raises InvalidUri."""
        try:
            self._client = _opened(self._make_client())
        except InvalidUri:
            raise
        except BrokerError as error:
            self._outage.failed(str(error), time.monotonic())
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_SECONDS)  # it may be connecting
        if self._client is not None:
            self._client.close()

    def _open_later(self) -> None:
        self._stop.wait(RETRY_SECONDS)
        try:
            self._client = _client(self._make_client, self._outage, self._stop)
        except Exception as error:  # noqa: BLE001 - an address that is wrong now ends no administration
            log.error("the broker's address cannot be used; redo casts the jobs", extra={"reason": str(error)})


def _with_tables(engine: Engine) -> Engine:
    check_tables(engine)
    return engine


def _client(make: Callable[[], Client], outage: OutageLog, stop: threading.Event) -> Client | None:
    return reached(lambda: _opened(make()), outage, stop, away=BrokerError, unless=(InvalidUri,))


def _opened(client: Client) -> Client:
    client.open()
    return client
