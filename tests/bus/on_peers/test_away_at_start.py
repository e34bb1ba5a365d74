"""A bus whose peers are away: it ends at once where it was not open yet, and waits for them later."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from osrdyne_bus.aio import AsyncBus
from osrdyne_bus.aio.kept_connection import KeptConnection
from osrdyne_bus.errors import ConnectFailed, PeerLost
from osrdyne_bus.threads import Bus
from testbed.waiting import until_async
from tests.unit.runtime.away_at_start import AFTER_SECONDS, AWAY_SECONDS, assert_three_kinds_of_lines

#: Where nothing listens.
NOBODY = ["amqp://127.0.0.1:1", "amqp://127.0.0.1:2"]


def connection_of(kept: KeptConnection) -> Any:
    """Return a connection over which nothing is done."""
    kept._lost = asyncio.get_running_loop().create_future()
    connection = SimpleNamespace(peer=NOBODY[0], close=lambda _timeout: asyncio.sleep(0))
    senders = SimpleNamespace(close=lambda: None)
    return SimpleNamespace(senders=senders, nodes=None, replies=None, connection=connection)


async def test_a_bus_that_is_opened_while_its_peers_are_away_ends_at_once_and_says_where_they_are() -> None:
    with pytest.raises(ConnectFailed, match=r"127\.0\.0\.1:2"):
        await AsyncBus(NOBODY).open()
    with pytest.raises(ConnectFailed, match=r"127\.0\.0\.1:2"):
        await asyncio.to_thread(Bus(NOBODY).open)


@pytest.mark.parametrize("when", ["opened", "connected again"])
async def test_a_peer_that_is_passed_over_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, when: str
) -> None:
    join, connected = KeptConnection._join, 0

    async def second(kept: KeptConnection, peer: Any) -> Any:
        nonlocal connected
        if peer.port == 1 and (connected or when == "opened"):
            return await join(kept, peer)
        connected += 1
        return connection_of(kept)

    monkeypatch.setattr(KeptConnection, "_join", second)
    async with AsyncBus([*NOBODY, NOBODY[0]] if when == "opened" else [NOBODY[0], *NOBODY]) as bus:
        if when != "opened":
            bus._connection._lost.set_result(PeerLost("the connection was lost"))
            await until_async(lambda: connected == 2)

    (line,) = [record.getMessage() for record in caplog.records if "next peer" in record.getMessage()]
    assert "127.0.0.1:1" in line


@pytest.mark.looptime
async def test_a_bus_says_the_three_lines_of_an_outage_of_all_its_peers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loop, join, connected = asyncio.get_running_loop(), KeptConnection._join, 0

    async def late(kept: KeptConnection, peer: Any) -> Any:
        nonlocal connected
        if connected and loop.time() < AWAY_SECONDS:
            return await join(kept, peer)
        connected += 1
        made = connection_of(kept)
        if connected == 1:
            loop.call_soon(kept._lost.set_result, PeerLost("the connection to 127.0.0.1:1 was lost"))
        return made

    monkeypatch.setattr(KeptConnection, "_join", late)
    async with AsyncBus(NOBODY):
        await asyncio.sleep(AWAY_SECONDS + AFTER_SECONDS)

    assert_three_kinds_of_lines(caplog.records, {"the peer"}, "127.0.0.1:", late=31.0)
