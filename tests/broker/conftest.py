"""Fixtures of tests with a real broker: pools, daemons as processes, and a client that is not ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.foreign_client import ForeignClient
from testbed.pool import DaemonProcess, Pool
from tests.conftest import Vhost

ROOT = Path(__file__).parents[2]


@pytest.fixture
def make_pool(vhost: Vhost) -> Iterator[Callable[..., Pool]]:
    """Applies pools to the test's vhost."""
    pools: list[Pool] = []

    def make(**settings: Any) -> Pool:
        pools.append(Pool.on(vhost.broker, vhost.name, **settings))
        return pools[-1]

    yield make
    for pool in pools:
        pool.remove_users()


@pytest.fixture
def make_daemon(tmp_path: Path) -> Iterator[Callable[..., DaemonProcess]]:
    """Starts daemons, and leaves neither them nor their workers running."""
    daemons: list[DaemonProcess] = []

    def make(pool: Pool, *, worker: list[str] | None = None, start: bool = True, **tables: Any) -> DaemonProcess:
        directory = Path(tables.pop("directory", tmp_path / f"daemon-{len(daemons)}"))
        daemon = DaemonProcess.of(pool, directory, worker=worker, **tables)
        daemons.append(daemon)
        if start:
            daemon.start()
        return daemon

    yield make
    for daemon in daemons:
        daemon.close()


@pytest.fixture
def make_client() -> Iterator[Callable[[Pool], ForeignClient]]:
    """Connects clients that are not ours."""
    clients: list[ForeignClient] = []

    def make(pool: Pool) -> ForeignClient:
        clients.append(ForeignClient(pool.client_uri, pool.names.request_exchange))
        return clients[-1]

    yield make
    for client in clients:
        client.close()
