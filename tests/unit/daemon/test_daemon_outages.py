"""What the daemon logs about its broker, and about what else ends its sessions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from osrdyne import leader
from osrdyne.daemon import Daemon
from osrdyne.errors import DriverError
from osrdyne.metrics import Metrics
from osrdyne.settings.daemon import load
from osrdyne_amqp.errors import BrokerUnreachable

pytestmark = pytest.mark.looptime

TEXT = """
[pool]
name = "core"

[broker]
amqp_uri = "amqp://daemon:verysecret@broker/vhost"
management_uri = "http://daemon:verysecret@broker:15672"

[driver]
kind = "noop"
"""


class IdleConnection:
    """A connection over which nothing is done."""

    async def close(self) -> None:
        """There is none."""


@pytest.fixture
async def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Daemon]:
    file = tmp_path / "settings.toml"
    file.write_text(TEXT)
    made = Daemon(load(file), Metrics())
    made.open()

    async def connect(*_: Any) -> IdleConnection:
        return IdleConnection()

    monkeypatch.setattr(made, "_connect", connect)
    yield made
    await made.close()


async def acting(daemon: Daemon, monkeypatch: pytest.MonkeyPatch, *ends: tuple[float, Exception]) -> None:
    """Let it stand by for so many seconds until each of these errors, and then for two hours."""
    left = list(ends)

    async def acquire(*_: Any) -> None:
        seconds, error = left.pop(0) if left else (1e9, RuntimeError())
        await asyncio.sleep(seconds)
        raise error

    monkeypatch.setattr(leader, "acquire", acquire)
    task = asyncio.create_task(daemon.act())
    await asyncio.sleep(sum(seconds for seconds, _ in ends) + 7200.0)
    task.cancel()
    await asyncio.wait([task])


async def test_an_outage_ends_for_a_daemon_that_stands_by_too(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    away = BrokerUnreachable("away")
    await acting(daemon, monkeypatch, (1.0, away), (86_400.0, away))

    said = [record.message for record in caplog.records]
    assert said == ["the broker cannot be used; trying again", "the broker can be used again"] * 2


async def test_what_is_not_the_broker_is_not_called_the_broker(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await acting(daemon, monkeypatch, (1.0, DriverError("the engine refuses")))

    said = [record.message for record in caplog.records]
    assert said == ["the session cannot be used; beginning again", "the session can be used again"]
