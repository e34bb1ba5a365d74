"""Puts proton where the tests import it from, and connects to the run's brokers."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from testbed import interior_router, proton
from tests.broker.conftest import make_daemon, make_pool
from tests.conftest import Vhost

sys.path.insert(0, str(proton.folder()))

from osrdyne_bus import Target
from osrdyne_bus.aio import AsyncBus
from osrdyne_bus.engine import BusConnection, Login

pytest.register_assert_rewrite(*(f"tests.bus.on_peers.{suite}" for suite in ("brokers", "conformance", "makers")))

__all__ = ["make_daemon", "make_pool"]  # fixtures of the tests of the daemon
#: A router cannot be installed by the tests. Where the machine has one, a variable names its command.
collect_ignore = [] if os.environ.get(interior_router.VARIABLE) else ["test_on_router.py"]
Connect = Callable[..., Any]
OpenBus = Callable[..., Any]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.full)


@pytest.fixture
async def connect(vhost: Vhost) -> AsyncIterator[Connect]:
    """Connects to the test's vhost as administrator; closes all connections in the end."""
    opened: list[BusConnection] = []

    async def one(**changed: Any) -> BusConnection:
        broker = vhost.broker
        given = {"login": Login(broker.admin, broker.admin_password), "virtual_host": f"vhost:{vhost.name}", **changed}
        opened.append(await BusConnection.connect("127.0.0.1", broker.amqp_port, **given))
        return opened[-1]

    yield one
    for connection in opened:
        await connection.close()


@pytest.fixture
async def open_bus(vhost: Vhost) -> AsyncIterator[OpenBus]:
    """Opens buses on the test's vhost, as administrator; closes them in the end."""
    opened: list[AsyncBus] = []
    broker = vhost.broker

    async def one(
        *, user: str = broker.admin, password: str = broker.admin_password, ports: tuple[int, ...] = (), **given: Any
    ) -> AsyncBus:
        peers = [
            f"amqp://{quote(user)}:{quote(password)}@127.0.0.1:{port}/{quote(vhost.name, safe='')}"
            for port in ports or (broker.amqp_port,)
        ]
        made = AsyncBus(peers, **given)
        await made.open()
        opened.append(made)
        return made

    yield one
    for bus in opened:
        await bus.close()


@pytest.fixture
def maps() -> Target:
    """A topic of the test's own: routers take a moment to know that the servers of another test have gone."""
    return Target(f"maps-{secrets.token_hex(4)}")


@pytest.fixture
def queue(vhost: Vhost) -> str:
    """The address of an empty queue."""
    body = {"durable": True, "arguments": {"x-queue-type": "quorum"}}
    vhost.broker.management.put("queues", vhost.name, "q", body=body)
    return "/queues/q"
